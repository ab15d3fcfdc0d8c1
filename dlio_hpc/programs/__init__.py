"""Programs other than dlio-hpc: what their Darshan logs show, the workloads that emulate them, and how similar they
are.

No other part imports this one. The command line loads it by name, and works without it.
"""
