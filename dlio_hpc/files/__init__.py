"""Files of jobs and archives: their names, safe writing, and the reading of archives."""
