"""Darshan: set it up for a run, read Darshan logs, and check whether the logs can be trusted."""
