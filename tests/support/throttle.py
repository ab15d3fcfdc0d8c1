"""A slow file system: code that Python executes as it starts (sitecustomize.py) delays reads below a folder."""

from pathlib import Path

_DELAYED = """
import os, time
_open, _read, _slow = os.open, os.preadv, set()
_is_here = {node!r} in (None, os.environ.get("SLURMD_NODENAME"))
def opened(path, *rest, **more):
    descriptor = _open(path, *rest, **more)
    is_slow = _is_here and str(path).startswith({folder!r}) and str(path).endswith({file!r})
    (_slow.add if is_slow else _slow.discard)(descriptor)
    return descriptor
def read(descriptor, *rest):
    if descriptor in _slow:
        time.sleep({delay!r})
    return _read(descriptor, *rest)
os.open, os.preadv = opened, read
"""


def below(folder: Path, node: str | None = None, file: str = "", delay: float = 0.02) -> str:
    """Return code that delays each read of a file below `folder` by `delay` seconds, on every node or on that one of
    Slurm's. file: only files whose names end with it.
    """
    return _DELAYED.format(folder=str(folder), node=node, file=file, delay=delay)
