"""What clients must agree on: columns, classes, the coding of tables."""
