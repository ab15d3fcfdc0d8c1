"""Lustre through its command lfs: set layouts, read them back, and record both. python -m dlio_hpc.lustre."""
