"""Writing of a text file that other programs read at any time."""

import os
from pathlib import Path

from dlio_hpc.errors import InfrastructureError


def write(path: Path, text: str, is_for_group: bool = False) -> None:
    """Write a file under another name and rename it, so that readers see the old file or the new one. is_for_group:
    whether the group may read the file whatever the umask. Raise InfrastructureError if it cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        if is_for_group:
            part.chmod(part.stat().st_mode & 0o7777 | 0o040)
        part.replace(path)
    except OSError as fault:
        part.unlink(missing_ok=True)
        raise InfrastructureError(f"cannot write {path}: {fault.strerror}") from fault
