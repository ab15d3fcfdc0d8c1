"""Darshan: how it is set up for a run, its logs read, and whether to believe them."""
