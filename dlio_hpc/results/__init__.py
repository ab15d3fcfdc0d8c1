"""Results of a run, and the metrics that follow from them."""
