"""The results of a run, and the metrics that are derived from them."""
