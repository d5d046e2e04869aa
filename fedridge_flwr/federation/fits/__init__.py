"""Ways of fitting, each a generator that reads like its algorithm."""
