"""Results of jobs in the directory layout of MLPerf Storage."""
