"""Batch systems. Each is described by a Scheduler, which is a small set of functions."""
