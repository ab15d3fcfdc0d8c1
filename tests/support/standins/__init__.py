"""Batch systems and tools that stand in for those of real machines."""
