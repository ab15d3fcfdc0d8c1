"""Lustre through its command lfs: layouts are set, then read back, and both recorded. python -m dlio_hpc.lustre."""
