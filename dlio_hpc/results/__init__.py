"""The results of a run, and the metrics that are computed from them."""
