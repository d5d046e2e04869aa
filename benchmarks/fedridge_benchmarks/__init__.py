"""What fedridge-flwr costs, as ratios measured in one run."""
