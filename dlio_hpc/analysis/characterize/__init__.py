"""From a Darshan log to the workload of its program, each key with its evidence."""
