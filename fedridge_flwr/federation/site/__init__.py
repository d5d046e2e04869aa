"""What a site decides: its policy, its file, what it has sent before."""
