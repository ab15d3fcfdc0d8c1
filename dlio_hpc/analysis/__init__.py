"""Analysis of recorded requests and steps: the metrics behind figures, tables and verdicts."""
