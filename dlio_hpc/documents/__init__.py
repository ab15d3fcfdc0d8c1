"""JSON documents that commands print with --json: a struct for each, and functions that make it from results."""
