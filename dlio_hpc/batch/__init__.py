"""The login side: from a plan to a job script, into the batch system, and back with what it left."""
