"""Requests and answers as Flower records; every value that arrives is checked."""
