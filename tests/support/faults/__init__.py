"""Faults of file systems, injected into every verb."""
