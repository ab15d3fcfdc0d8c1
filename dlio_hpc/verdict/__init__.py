"""Verdicts: the history of what was measured, baselines, regression, acceptance."""
