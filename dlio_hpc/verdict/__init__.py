"""Verdicts on measurements: history of jobs, baselines, regressions and acceptance."""
