"""I/O profiles of programs, and the similarity between two profiles."""
