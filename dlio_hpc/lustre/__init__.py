"""Set and read back Lustre layouts with the command lfs, and record them: python -m dlio_hpc.lustre."""
