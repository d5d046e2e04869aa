"""Differences between sites: effects, estimates of single sites, leaving one out."""
