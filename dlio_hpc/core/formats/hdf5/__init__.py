"""The format hdf5."""
