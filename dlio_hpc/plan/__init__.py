"""Planning of a study: its points, jobs and runs, datasets, the order of samples, cost and limits. The result is a
plan.json per job.
"""
