"""Analysis of recorded requests and steps: the metrics that figures, tables and verdicts are made of."""
