"""The login side: write the job script, submit it, watch the job and archive its results."""
