"""Entry point of `python -m dlio_hpc`, which is the same program as `dlio-hpc`."""

from dlio_hpc.cli.command_line import main

if __name__ == "__main__":
    main()
