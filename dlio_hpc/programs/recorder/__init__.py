"""Recorder of Python programs. It records the calls that a program makes to its libraries, in one small file per
process.

The recorder runs inside programs that are not part of dlio-hpc. It uses only the standard library, imports nothing of
dlio-hpc, runs in Python 3.8 and newer, and works from a copy of this folder. PYTHONPATH contains the folder `start/`.
"""
