"""Programs other than dlio-hpc: analysis of their Darshan logs, workloads that emulate them, and the similarity of
their I/O.

No other package of dlio-hpc imports this package. The command line loads it by name, and works without it.
"""
