"""Roles of the files of a program: training data, checkpoints, outputs and others. Roles are derived from the names of
files and from the accesses to files, because logs do not contain the contents of files.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from dlio_hpc.darshan import setup
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.programs.files import own_files
from dlio_hpc.programs.files.file_stats import FileStats
from dlio_hpc.programs.similarity import io_profile

Name = Literal["dataset", "evaluation data", "auxiliary file", "checkpoint", "output", "library", "other"]

_DATA = re.compile(io_profile.DATA)
_INSTALLED = re.compile(
    r"^/(?:usr|bin|lib|lib64|sbin|boot|var/lib)/|/(?:conda|miniconda\d?|venv)/|[.](?:conf|ini|cfg|jar|class|properties)$"
)
_STREAM = re.compile(r"^<STD(?:IN|OUT|ERR)>$|^/dev/|^(?:pipe|socket|anon_inode):")
_MODEL = re.compile(
    r"ckpt|checkpoint|weights|snapshot|[.](?:pt|pth|distcp|safetensors|keras|pdparams|tfckpt)$|(?:^|[/_.-])model[^/]*$",
    re.IGNORECASE,
)
# Files that name the latest checkpoint: TensorFlow's, which is written under a temporary name first, DeepSpeed's and
# Megatron's.
_TRACKER = re.compile(r"^(?:checkpoint|(?:latest|last)[a-z_]*)(?:[.](?:tmp\w*|txt|json))?$", re.IGNORECASE)
# Words in the names of files, or of their folders, that hold data for evaluation.
_EVALUATION = re.compile(
    r"(?:^|[^A-Za-z])(?:val|valid|validation|eval|evaluation|test|testing|dev|holdout)(?:[^A-Za-z]|$)", re.IGNORECASE
)
# Files of a kind with more files than this are not auxiliary files, because a workload names each auxiliary file.
MOST_SIDES = 8
_ALIKE, _UNLIKE, _LITTLE, _MANY = 0.1, 0.1, 0.05, 4
_MESSAGES = (".log", ".out", ".err")
_TEMPORARY = ("/tmp/", "/var/tmp/", "/dev/shm/")
# Size in bytes of the smallest checkpoint. A smaller file is assumed to be a log or a note, however often it is
# written.
LEAST_STATE = 4096
# Files that a program itself wrote, and read this many times, may be its dataset; a cache or a copy is read less often.
_AGAIN = 8
# No state of a model is smaller than this, whatever the name of the file is.
_FEW_BYTES = 64


class Role(NamedTuple):
    """Role of a file. why: a phrase with the reason. is_own: whether the program wrote the file before it read it."""

    file: FileStats
    role: Name
    why: str
    is_own: bool = False


def classify(files: Sequence[FileStats], is_selected: bool = False) -> list[Role]:
    """Return the role of each file, in the order given. is_selected: whether the user selected these files, which may
    then be a dataset even if the program itself wrote them.
    """
    own = own_files.of(files)
    others = [_apart(file) for file in files if file.path not in own]
    # A program that has no other data and reads its own again and again has generated its dataset.
    read = [file for file in own.values() if file.bytes_read]
    is_again = sum(file.bytes_read for file in read) > _AGAIN * sum(file.bytes_written for file in read)
    is_data = is_selected or (is_again and not any(role.role == "dataset" for role in others))
    roles = [_own(file, own[file.path], is_data) if file.path in own else _apart(file) for file in files]
    read = [role.file for role in roles if role.role == "dataset"]
    refined = {role.file.path: role for role in (*_of_data(read), *_repeated(roles))}
    made = [refined.get(role.file.path, role) for role in roles]
    return [role._replace(is_own=role.file.path in own and role.role in ("dataset", "other")) for role in made]


def is_evaluation(path: str) -> bool:
    """Return whether the name of a file, or of its folder, says that its data are for evaluation."""
    return _EVALUATION.search("/".join(path.rsplit("/", 2)[-2:])) is not None


def is_model(path: str) -> bool:
    """Return whether a file has a name such as models or checkpoints have."""
    return _MODEL.search(path) is not None


def kind(path: str) -> str:
    """Return the kind of a file: its extension, or its name if there is no extension. Each number in it is replaced by
    #.
    """
    name = os.path.basename(path)
    stem, dot, ending = name.partition(".tfrecord")
    if not dot:
        stem, ending = os.path.splitext(name)
        return _numbered(ending).lower() if ending and not ending[1:].isdigit() else _numbered(stem)
    return _numbered(dot + ending).lower()


def pattern(path: str) -> str:
    """Return the path with each number replaced by #."""
    return _numbered(path)


def _numbered(text: str) -> str:
    return re.sub(r"\d+", "#", text)


def _apart(file: FileStats) -> Role:
    """Return the role of a file from its path, and from whether it was read or written. A file that was read and has no
    other role gets the preliminary role "dataset".
    """
    if not _DATA.search(file.path) or _INSTALLED.search(file.path):
        return Role(file, "library", "program or library, by its path")
    if (why := _unfit(file)) is not None:
        return Role(file, "other", why)
    if file.bytes_written and file.bytes_read < 2 * file.bytes_written:
        return _written(file)
    if file.path.endswith(_MESSAGES):
        return Role(file, "other", "read, and named like a file of a program's messages")
    return Role(file, "dataset", "read")


def _own(file: FileStats, written: FileStats, is_data: bool) -> Role:
    """Return the role of a file that the program wrote before it read it. written: the file, including the accesses
    under its former path. is_data: whether such a file may belong to the dataset.
    """
    first = _apart(file)
    if first.role in ("library", "other"):
        return first
    # Each rank may read a checkpoint back.
    if _is_state(file) and file.bytes_read < 2 * written.bytes_written * max(file.ranks, 1):
        return _written(file)
    if not file.bytes_read:
        return Role(file, "other", "written, and then renamed and read under its new name")
    return Role(file, "dataset" if is_data else "other", "the program itself wrote it before it read it")


def _unfit(file: FileStats) -> str | None:
    """Return the reason why a file cannot be part of a workload. Return None if the file can be part of a workload."""
    if _STREAM.search(file.path):
        return "a terminal, pipe or device"
    if dataset_folder.is_note(os.path.basename(file.path)):
        return "dlio-hpc's description of a dataset"
    if file.path.endswith("/darshan/clock") and file.moved % setup.MARKER_BYTES == 0:
        return "marker file for dlio-hpc's clock alignment"
    return None if file.moved else "opened, but neither read nor written"


def _written(file: FileStats) -> Role:
    if file.path.startswith(_TEMPORARY) and file.moved < LEAST_STATE:
        return Role(file, "other", "a few bytes in a temporary folder")
    if (match := _MODEL.search(file.path)) and _is_state(file):
        return Role(file, "checkpoint", f"written, and its name has {match[0]!r}")
    return Role(file, "output", "written, and too small for a checkpoint" if match else "written")


def _is_state(file: FileStats) -> bool:
    """Return whether a file has the name of a model or a checkpoint. A file that only contains the name of the latest
    checkpoint is not regarded as one.
    """
    least = LEAST_STATE if _TRACKER.search(os.path.basename(file.path)) else _FEW_BYTES
    return is_model(file.path) and file.size >= least


def _of_data(files: list[FileStats]) -> list[Role]:
    """Return the role of each file that was read. kind() groups the files by their names; the group with the most bytes
    read is the dataset.
    """
    kinds: dict[str, list[FileStats]] = defaultdict(list)
    for file in files:
        kinds[kind(file.path)].append(file)
    if not kinds:
        return []
    total = sum(file.bytes_read for file in files)
    main = max(kinds, key=lambda name: (sum(file.bytes_read for file in kinds[name]), name))
    roles = []
    for name, members in kinds.items():
        share = sum(file.bytes_read for file in members) / total if total else 0.0
        roles += _main(members, name, share) if name == main else _auxiliary(members, name, share)
    return roles


def _main(files: list[FileStats], name: str, share: float) -> list[Role]:
    patterns = Counter(pattern(file.path) for file in files)
    usual, count = patterns.most_common(1)[0]
    middle = _middle(files)
    evaluated = _evaluated(files)
    small = {file.path for file in _small(files, middle)}
    ending = f"{name!r} files" if name.startswith(".") else f"files called {name!r}"
    why = f"one of {len(files):,} {ending}, from which {share:.1%} of the bytes were read"
    roles = []
    for file in files:
        is_lone = count >= _MANY and pattern(file.path) != usual and patterns[pattern(file.path)] == 1
        if file.path in evaluated:
            roles.append(Role(file, "evaluation data", f"read, and its path has {evaluated[file.path]!r}"))
        elif file.path in small or (is_lone and file.size < _UNLIKE * middle):
            size = f"its size is {file.size / middle:.1%} of the size of the file that holds the median byte"
            roles.append(Role(file, "auxiliary file", f"was read, and {size}"))
        else:
            roles.append(Role(file, "dataset", why))
    return roles


def _middle(files: list[FileStats]) -> float:
    """Return the size of the file that holds the median byte, after the files are sorted by size. Small files hardly
    change the result, even if they are many.
    """
    sizes = np.sort([file.size for file in files])
    return float(sizes[np.searchsorted(np.cumsum(sizes), sizes.sum() / 2)])


def _small(files: list[FileStats], middle: float) -> list[FileStats]:
    """Return the files that are far smaller than the others. Return an empty result if there are many of them, or if
    many bytes were read from them. middle: usual size of a file in bytes.
    """
    small = [file for file in files if file.size < _UNLIKE * middle]
    read = sum(file.bytes_read for file in small)
    is_little = read < _LITTLE * sum(file.bytes_read for file in files)
    return small if len(small) <= MOST_SIDES and is_little else []


def _evaluated(files: list[FileStats]) -> dict[str, str]:
    """Return the paths of the files with evaluation data, each with the word by which it is recognised. Folders that
    all files share are ignored. Return an empty result if these files hold most of the bytes.
    """
    folder = os.path.commonpath([os.path.dirname(file.path) for file in files]) if len(files) > 1 else ""
    matches = {file: _EVALUATION.search(file.path[len(folder) :]) for file in files}
    marked = {file: match[0].strip("/_.-0123456789") for file, match in matches.items() if match is not None}
    is_less = sum(file.bytes_read for file in marked) < 0.5 * sum(file.bytes_read for file in files)
    return {file.path: word for file, word in marked.items()} if is_less else {}


def _auxiliary(files: list[FileStats], name: str, share: float) -> list[Role]:
    if len(files) > MOST_SIDES:
        return [
            Role(file, "other", f"one of {len(files):,} {name!r} files, which hold {share:.1%} of all bytes read")
            for file in files
        ]
    why = f"name or extension unlike the dataset's files; such files hold {share:.1%} of all bytes read"
    return [Role(file, "auxiliary file", why) for file in files]


def _repeated(roles: list[Role]) -> list[Role]:
    """Return the outputs that are checkpoints, with their new roles. An output is a checkpoint if it was overwritten,
    or if it belongs to a group of files of similar name and size that were written one after the other.
    """
    kinds: dict[str, list[FileStats]] = defaultdict(list)
    for role in roles:
        if role.role == "output" and role.file.size >= LEAST_STATE:
            kinds[pattern(role.file.path)].append(role.file)
    checkpoints = []
    for members in kinds.values():
        times = sum(file.bytes_written for file in members) / sum(file.size for file in members)
        if times > 1.9:
            why = f"written {times:.3g} times over"
        elif len(members) > 1 and are_alike([file.size for file in members]) and _in_turn(members):
            why = f"one of {len(members)} files of similar name and size, written one after the other"
        else:
            continue
        checkpoints += [Role(file, "checkpoint", why) for file in members]
    return checkpoints


def _in_turn(files: list[FileStats]) -> bool:
    """Return whether each rank wrote several of the files one after the other. Different ranks may write at the same
    time.
    """
    spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for file in files:
        if file.written_s is not None:
            spans[file.rank].append(file.written_s)
    return bool(spans) and all(
        len(own) > 1 and all(first[1] < second[0] for first, second in pairwise(sorted(own))) for own in spans.values()
    )


def of(roles: Iterable[Role], name: Name) -> list[FileStats]:
    """Return the files with this role."""
    return [role.file for role in roles if role.role == name]


def are_alike(sizes: list[int]) -> bool:
    """Return whether sizes differ by at most a tenth of their median."""
    middle = float(np.median(sizes))
    return bool(np.ptp(sizes) <= _ALIKE * middle)
