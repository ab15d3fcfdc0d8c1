"""Planning, from a study to plan.json: points, jobs, runs, datasets, the order of samples, cost and limits."""
