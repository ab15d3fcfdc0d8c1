"""Set Lustre layouts with the command lfs, read them back, and record them: python -m dlio_hpc.lustre."""
