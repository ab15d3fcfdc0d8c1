"""Recordings of programs: their files, the program that they show, and the workload that is derived from them."""
