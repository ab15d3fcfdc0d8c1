"""dlio-hpc: a benchmark of storage I/O for deep learning on supercomputers."""

__version__ = "0.1.0"
