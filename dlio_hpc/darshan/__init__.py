"""Darshan: set it up for a run, read its logs, and check whether they can be trusted."""
