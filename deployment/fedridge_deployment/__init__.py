"""A whole Flower deployment on the loopback device, as a site would run it."""
