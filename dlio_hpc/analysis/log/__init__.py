"""Requests and counters of a log: which files a program used, how it read them, and in which steps."""
