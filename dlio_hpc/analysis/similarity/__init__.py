"""I/O profiles of programs and how much alike they are."""
