"""Writing of a text file that other programs may read at any time."""

import os
from pathlib import Path

from dlio_hpc.base.errors import InfrastructureError


def write(path: Path, text: str, permissions: int = 0) -> None:
    """Write a file under another name and rename it, so that readers see the old file or the new one. permissions:
    permissions that the file gets in addition to the permissions that the umask leaves. Raise InfrastructureError if it
    cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        if permissions:
            part.chmod(part.stat().st_mode & 0o7777 | permissions)
        part.replace(path)
    except OSError as fault:
        part.unlink(missing_ok=True)
        raise InfrastructureError(f"cannot write {path}: {fault.strerror}") from fault
