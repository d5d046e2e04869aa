"""A user's rows: checked, named, and handed out in blocks; knows nothing of models."""
