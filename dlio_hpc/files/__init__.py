"""Files of jobs and archives: the names of the files, safe writing, and reading of archives."""
