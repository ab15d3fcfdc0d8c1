"""Records of jobs and studies, read from a directory or an archive, and their outcomes."""
