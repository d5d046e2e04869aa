"""Tests run the notebooks, not the scripts they are paired with."""

collect_ignore_glob = ["*.py"]
