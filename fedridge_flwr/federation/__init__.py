"""One fit, both sides, without Flower: what is asked, answered, and made of it."""
