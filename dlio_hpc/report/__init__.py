"""From a job's files to what people and programs read."""
