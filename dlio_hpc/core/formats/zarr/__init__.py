"""The format zarr."""
