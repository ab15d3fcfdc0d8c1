"""Loaders, which deliver batches to the training loop."""
