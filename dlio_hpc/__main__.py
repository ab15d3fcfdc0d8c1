"""Entry point of `python -m dlio_hpc`, the same program as `dlio-hpc`."""

from dlio_hpc.cli import main

if __name__ == "__main__":
    main()
