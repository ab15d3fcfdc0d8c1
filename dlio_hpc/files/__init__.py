"""Files of jobs and archives: their names, how they are written safely, and how archives are read."""
