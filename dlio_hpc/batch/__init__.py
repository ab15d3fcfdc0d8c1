"""The part that runs on the login node: write the job script, submit it, watch the job and archive its results."""
