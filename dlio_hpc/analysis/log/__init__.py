"""Analysis of a log's requests and counters: the files that a program used, its access pattern, and its steps."""
