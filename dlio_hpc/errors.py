"""Errors that the functions of the Python API raise. Their `exit_code` is the exit code of the command."""

from dlio_hpc.base.errors import ConfigError, DlioError, Incomplete, InfrastructureError, InvalidRun, Unexpected

__all__ = ["ConfigError", "DlioError", "Incomplete", "InfrastructureError", "InvalidRun", "Unexpected"]
