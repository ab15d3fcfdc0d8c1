"""Writing of a text file that other programs read at any time."""

import os
from pathlib import Path

from dlio_hpc.errors import InfrastructureError


def write(path: Path, text: str, mode: int | None = None) -> None:
    """Write a file under another name and rename it, so that readers see the old file or the new one. mode: permissions
    of the file; None for those that the umask leaves. Raise InfrastructureError if it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        if mode is not None:
            part.chmod(mode)
        part.replace(path)
    except OSError as fault:
        part.unlink(missing_ok=True)
        raise InfrastructureError(f"cannot write {path}: {fault.strerror}") from fault
