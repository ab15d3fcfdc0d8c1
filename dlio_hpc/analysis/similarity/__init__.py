"""I/O profiles of programs and their similarity."""
