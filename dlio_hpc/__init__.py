"""dlio-hpc: how does this storage serve deep learning?"""

__version__ = "0.1.0"
