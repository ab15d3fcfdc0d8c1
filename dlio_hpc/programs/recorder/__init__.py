"""Recorder of Python programs: what a program asks its libraries for, one small file a process.

The recorder runs inside programs that are not ours. It uses the standard library alone, imports nothing of dlio-hpc,
runs in Python 3.8 and newer, and works from a copy of this folder. `start/` is the entry for PYTHONPATH.
"""
