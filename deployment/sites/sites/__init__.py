"""Ridge regression over the CSV files of several sites."""
