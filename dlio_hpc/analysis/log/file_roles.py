"""What each file of a program was to it: data that it learns from, or something beside them. Judged by names and by
what was done to it, never by content, which no log has.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from dlio_hpc.analysis.log.file_stats import Seen
from dlio_hpc.analysis.similarity import io_profile
from dlio_hpc.darshan import setup
from dlio_hpc.plan import dataset

Name = Literal["dataset", "auxiliary file", "checkpoint", "output", "library", "other"]

_DATA = re.compile(io_profile.DATA)
_INSTALLED = re.compile(
    r"^/(?:usr|bin|lib|lib64|sbin|boot|var/lib)/|/(?:conda|miniconda\d?|venv)/|[.](?:conf|ini|cfg)$"
)
_STREAM = re.compile(r"^<STD(?:IN|OUT|ERR)>$|^/dev/|^(?:pipe|socket|anon_inode):")
_MODEL = re.compile(
    r"ckpt|checkpoint|weights|snapshot|[.](?:pt|pth|safetensors|keras|pdparams|tfckpt)$|(?:^|[/_.-])model[^/]*$",
    re.IGNORECASE,
)
# Endings of data that programs learn from.
_KNOWN = re.compile(
    r"[.](?:tfrecords?(?:-#-of-#)?|tfrec|h5|hdf5|nc4?|npz|npy|csv|jpe?g|png|bin|parquet|arrow|tar|lmdb|mdb|rec)$",
    re.IGNORECASE,
)
# Classes with more files than that are no auxiliary files, of which a workload names each.
MOST_SIDES = 8
_ALIKE, _UNLIKE, _MANY = 0.1, 0.1, 4
_TEMPORARY = ("/tmp/", "/var/tmp/", "/dev/shm/")
# Less than that is a log or a note, however often it is written.
_LEAST_STATE = 4096


class Role(NamedTuple):
    """why: in words."""

    file: Seen
    role: Name
    why: str


def tell(files: Iterable[Seen]) -> list[Role]:
    """Of every file, in the order given."""
    found = [_apart(file) for file in files]
    read = [role.file for role in found if role.role == "dataset"]
    told = {role.file.path: role for role in (*_of_data(read), *_repeated(found))}
    return [told.get(role.file.path, role) for role in found]


def kind(path: str) -> str:
    """Files that differ in numbers alone are of one kind: by their ending, or where they have none by their name."""
    name = os.path.basename(path)
    stem, dot, ending = name.partition(".tfrecord")
    if not dot:
        stem, ending = os.path.splitext(name)
        return _numbered(ending).lower() if ending and not ending[1:].isdigit() else _numbered(stem)
    return _numbered(dot + ending).lower()


def pattern(path: str) -> str:
    """A path with # for its numbers."""
    return _numbered(path)


def _numbered(text: str) -> str:
    return re.sub(r"\d+", "#", text)


def _apart(file: Seen) -> Role:
    """What its name or the direction of its bytes tell; all other data that are read are "dataset" for now."""
    if not _DATA.search(file.path) or _INSTALLED.search(file.path):
        return Role(file, "library", "a program or library, by its path")
    if (why := _unfit(file)) is not None:
        return Role(file, "other", why)
    if file.bytes_written and file.bytes_read < 2 * file.bytes_written:
        return _written(file)
    return Role(file, "dataset", "read")


def _unfit(file: Seen) -> str | None:
    """Why it is nothing that a workload has."""
    if _STREAM.search(file.path):
        return "a terminal, pipe or device"
    if dataset.is_note(os.path.basename(file.path)):
        return "dlio-hpc's own note"
    if file.path.endswith("/darshan/clock") and file.moved % setup.MARKER_BYTES == 0:
        return "dlio-hpc's own clock"
    return None if file.moved else "opened, but neither read nor written"


def _written(file: Seen) -> Role:
    if file.path.startswith(_TEMPORARY) and file.moved < _LEAST_STATE:
        return Role(file, "other", "a few bytes in a temporary folder")
    if found := _MODEL.search(file.path):
        return Role(file, "checkpoint", f"written, and its name has {found[0]!r}")
    return Role(file, "output", "written")


def _of_data(files: list[Seen]) -> list[Role]:
    """The kind of which most bytes are read is the dataset."""
    kinds: dict[str, list[Seen]] = defaultdict(list)
    for file in files:
        kinds[kind(file.path)].append(file)
    if not kinds:
        return []
    total = sum(file.bytes_read for file in files)
    main = max(kinds, key=lambda name: (sum(file.bytes_read for file in kinds[name]), name))
    found = []
    for name, members in kinds.items():
        share = sum(file.bytes_read for file in members) / total if total else 0.0
        found += _main(members, name, share) if name == main else _beside(members, name, share)
    return found


def _main(files: list[Seen], name: str, share: float) -> list[Role]:
    patterns = Counter(pattern(file.path) for file in files)
    usual, count = patterns.most_common(1)[0]
    middle = float(np.median([file.size for file in files]))
    ending = f"{name!r} files" if name.startswith(".") else f"files called {name!r}"
    why = f"one of {len(files):,} {ending}, of which {share:.1%} of all data read came"
    found = []
    for file in files:
        is_lone = count >= _MANY and pattern(file.path) != usual and patterns[pattern(file.path)] == 1
        if is_lone and file.size < _UNLIKE * middle:
            found.append(
                Role(file, "auxiliary file", f"read, alone of its name, with {file.size / middle:.1%} of a file")
            )
        else:
            found.append(Role(file, "dataset", why))
    return found


def _beside(files: list[Seen], name: str, share: float) -> list[Role]:
    if len(files) > MOST_SIDES:
        return [
            Role(file, "other", f"one of {len(files):,} {name!r} files, {share:.1%} of what was read") for file in files
        ]
    return [Role(file, "auxiliary file", f"read beside the dataset, {share:.1%} of what was read") for file in files]


def _repeated(found: list[Role]) -> list[Role]:
    """Outputs that are written again and again are states that are kept: over each other, or files alike in turn."""
    kinds: dict[str, list[Seen]] = defaultdict(list)
    for role in found:
        if role.role == "output" and role.file.size >= _LEAST_STATE:
            kinds[pattern(role.file.path)].append(role.file)
    told = []
    for members in kinds.values():
        times = sum(file.bytes_written for file in members) / sum(file.size for file in members)
        if times > 1.9:
            why = f"written {times:.3g} times over"
        elif len(members) > 1 and are_alike([file.size for file in members]) and _in_turn(members):
            why = f"one of {len(members)} files of one name, alike in size, written one after the other"
        else:
            continue
        told += [Role(file, "checkpoint", why) for file in members]
    return told


def _in_turn(files: list[Seen]) -> bool:
    spans = sorted(file.written_s for file in files if file.written_s is not None)
    return len(spans) > 1 and all(one[1] < other[0] for one, other in pairwise(spans))


def of(found: Iterable[Role], role: Name) -> list[Seen]:
    return [each.file for each in found if each.role == role]


def is_known(path: str) -> bool:
    """Does it end as data do that programs learn from?"""
    return _KNOWN.search(kind(path)) is not None


def are_alike(sizes: list[int]) -> bool:
    """All within a tenth of their median."""
    middle = float(np.median(sizes))
    return bool(np.ptp(sizes) <= _ALIKE * middle)
