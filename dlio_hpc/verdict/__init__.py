"""Verdicts: history of jobs, baselines, regression and acceptance."""
