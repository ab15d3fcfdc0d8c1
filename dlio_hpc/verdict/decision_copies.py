"""Copies of the signed decisions that this user has seen, outside the folder of archives. Members of a group may write
to that folder, so they could remove a decision. The signatures of the remaining decisions do not show this.

The copies are in $XDG_STATE_HOME/dlio-hpc/decisions, or in ~/.local/state/dlio-hpc/decisions, with one folder for each
folder of archives.
"""

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.files import rundir, safe_folders, user_folders
from dlio_hpc.verdict import signatures

# Largest copy in bytes.
_LONGEST = 16 << 20


class Copy(NamedTuple):
    """Copy of a signed decision. path: path of the copy, which has the name of the decision's file."""

    path: Path
    content: bytes


def folder_of(archives: Path) -> Path | None:
    """Return the folder of the copies for a folder of archives, or None if the user has no home."""
    state = user_folders.of_user("XDG_STATE_HOME", ".local/state")
    name = hashlib.sha256(os.fsencode(os.path.realpath(archives))).hexdigest()[:16]
    return None if state is None else state / "decisions" / name


def keep(archives: Path, path: Path, content: bytes) -> None:
    """Copy a decision and its signature, unless they are copied already. Do nothing if the user has no home."""
    folder = folder_of(archives)
    if folder is None:
        return
    copy = folder / path.name
    with suppress(OSError):
        if not copy.exists():
            signature = safe_folders.content(path.with_name(path.name + signatures.SUFFIX), _LONGEST)
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            rundir.write(copy.with_name(copy.name + signatures.SUFFIX), signature)
            rundir.write(copy, content)


def valid(archives: Path, allowed: Path) -> Iterator[Copy]:
    """Yield each copy with a valid signature of a key in the file `allowed`."""
    folder = folder_of(archives)
    if folder is None:
        return
    with suppress(OSError):
        for path in rundir.matching(folder, "[!.]*.json"):
            content = safe_folders.content(path, _LONGEST)
            if signatures.signer(path, content, allowed) is not None:
                yield Copy(path, content)
