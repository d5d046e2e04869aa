"""A client's side: what it answers to each request, from its rows and guards."""
