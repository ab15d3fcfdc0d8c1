"""python -m dlio_hpc, which is dlio-hpc."""

from dlio_hpc.cli import main

if __name__ == "__main__":
    main()
