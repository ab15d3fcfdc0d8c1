"""The ranks: generate a dataset, read it as deep learning does, and say how long everything took."""
