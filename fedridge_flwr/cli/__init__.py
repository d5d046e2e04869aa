"""The `fedridge` command: check a table, rehearse a fit, show, predict, report."""
