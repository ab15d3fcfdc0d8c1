"""Files of a program: their roles, formats, arrays and access patterns, from a Darshan log."""
