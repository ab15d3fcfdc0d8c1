"""Loaders: how batches come to the training loop."""
