"""What jobs and studies left on disk, read from a directory or an archive alike, and how they ended."""
