"""Tests that need io_uring are skipped where the kernel refuses it."""

import functools

import pytest

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.core.io_uring import Ring


def required() -> None:
    if reason := refusal():
        pytest.skip(reason)


@functools.cache
def refusal() -> str:
    """Return why the kernel refuses io_uring, or an empty string."""
    try:
        Ring(1).close()
    except ConfigError as fault:
        return str(fault)
    return ""
