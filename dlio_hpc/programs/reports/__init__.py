"""Tables, pages and pictures of programs: derived workloads, checks, similarity."""
