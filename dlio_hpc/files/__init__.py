"""Files of a job and of the archives: their names, how they are written safely, and how archives are read."""
