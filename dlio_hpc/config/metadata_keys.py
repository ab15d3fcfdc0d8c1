"""The keys of a workload's `metadata`: operations on files and directories as a load of its own."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from dlio_hpc.base import units
from dlio_hpc.base.serialization import refuse
from dlio_hpc.results.phases import PHASES, Phase

# Phases that work on files which `create` made, and on directories which `mkdir` made.
_ON_FILES: tuple[Phase, ...] = ("write", "stat", "open_read_close", "rename", "unlink")
# Largest number of directories of a tree, and of operations of a rank in a phase.
_MOST_LEAVES, _MOST_FILES = 10**6, 10**8
# Largest size of a file, which one call of write(2) writes.
_MOST_BYTES = 1 << 30


class MetadataKeys(Struct, frozen=True, forbid_unknown_fields=True):
    """Operations on files and directories. Each step is a phase: all ranks make the operations of this phase, and then
    wait for each other. An epoch consists of all phases; train.epochs repeats them, in new folders.
    """

    files: units.Positive
    """Number of files, and of directories, that each rank creates. Example: 10000"""
    phases: Annotated[tuple[Phase, ...], Meta(min_length=1)] | None = None
    """Phases, in the order in which they are made; null: all, in the order of this list, and without write if `bytes`
    is 0. mkdir, rmdir: create and remove empty directories. create: create empty files. write: open a file, write
    `bytes`, and close it. stat: get the attributes of a file. readdir: list the folders. open_read_close: open a file,
    read `bytes`, and close it. rename, unlink: rename and remove files. Example: [create, stat, unlink]
    """
    bytes: units.Size = units.Size(0)
    """Bytes that are written to and read from each file. Example: 4 KiB"""
    folders: Literal["own", "shared"] = "own"
    """own: each rank creates its files in a folder of its own; shared: all ranks create their files in one folder."""
    depth: Annotated[int, Meta(ge=0, le=20)] = 0
    """Levels of subfolders in each folder. The files are divided evenly among the subfolders of the lowest level."""
    width: units.Positive = 1
    """Number of subfolders in each folder of the levels above. Example: 10"""
    shift_nodes: units.Natural = 1
    """Number of nodes between the rank that creates a file and the rank that works on it in the next phase. The number
    is added again for each further phase, so that the client of a node has not used a file before. With 1, this needs
    as many nodes as there are phases that use the files, including create. 0: each rank works on its own files.
    """
    shuffle: bool = True
    """Work on the files of a phase in random order, except when they are created."""
    fsync: bool = False
    """Call fsync after each write."""
    time_limit: units.Seconds | None = None
    """Time after which a rank ends a phase, although operations are left; null: no limit. It does not end rename,
    because the phases after it need all files under their new names. With a limit, write keeps the order of create.
    Example: 30 s
    """

    def __post_init__(self) -> None:
        order = self.order
        first = order.index("create") if "create" in order else len(order)
        early = [phase for phase in order[:first] if phase in _ON_FILES]
        refuse(
            (len(set(order)) < len(order), "phases: each phase may be given once"),
            (bool(early), f"phases: {', '.join(early)} works on files, so create must come before"),
            (
                "rmdir" in order and "mkdir" not in order[: order.index("rmdir")],
                "phases: rmdir removes directories, so mkdir must come before",
            ),
            (
                self.bytes > 0 and "write" not in order,
                "bytes: only the phase write writes them; add write to phases, or set bytes to 0",
            ),
            (
                "open_read_close" in order and "write" in order[order.index("open_read_close") :],
                "phases: open_read_close reads what write has written, so write must come before",
            ),
            (self.width > 1 and not self.depth, "width: without depth there are no subfolders; set depth, such as 1"),
            (
                "write" in order and not self.bytes,
                "phases: write needs bytes, such as bytes: 4 KiB; leave write out for empty files",
            ),
            (self.bytes > _MOST_BYTES, f"bytes: at most {units.format_size(_MOST_BYTES)}"),
            (
                "unlink" in order and any(phase in _ON_FILES for phase in order[order.index("unlink") + 1 :]),
                "phases: unlink removes the files, so it must be the last phase that works on files",
            ),
            (self.files > _MOST_FILES, f"files: at most {_MOST_FILES:,}"),
            (
                self.leaves > min(self.files, _MOST_LEAVES),
                f"width ** depth is {self.leaves:,}, but at most one subfolder for each file is possible, that is "
                f"{min(self.files, _MOST_LEAVES):,}; lower width or depth",
            ),
        )

    @property
    def order(self) -> tuple[Phase, ...]:
        """The phases, in the order in which they are made."""
        if self.phases is not None:
            return self.phases
        return tuple(phase for phase in PHASES if phase != "write" or self.bytes)

    def distance(self, phase: Phase) -> int:
        """Return the number of nodes from the rank that makes the files or directories of a phase to the rank that
        works on them.
        """
        users = self._users(phase)
        return self.shift_nodes * users.index(phase) if phase in users else 0

    def answered_twice(self, nodes: int) -> list[Phase]:
        """Return the phases in which a node works on files or directories that it has used in an earlier phase, so
        that its cache may answer. nodes: number of nodes.
        """
        used = [(maker(phase), self.distance(phase) % nodes) for phase in self.order]
        return [
            phase
            for number, phase in enumerate(self.order)
            if used[number] in used[:number] or (phase == "readdir" and not used[number][1])  # ranks make their folders
        ]

    @property
    def nodes_needed(self) -> int:
        """Number of nodes from which on no node uses a file in two phases, if shift_nodes is 1."""
        return max(len(self._users(phase)) for phase in self.order)

    def _users(self, phase: Phase) -> list[Phase]:
        """Return the phases that work on the same files or directories as a phase, from the phase on that makes them.
        Each rank works on its own folders before. The list is empty if no phase makes them.
        """
        making = maker(phase)
        later = self.order[self.order.index(making) :] if making in self.order else ()
        return [one for one in later if maker(one) == making]

    @property
    def leaves(self) -> int:
        """Number of folders of the lowest level in each folder."""
        return int(self.width**self.depth)


def maker(phase: Phase) -> Phase:
    """Return the phase that makes what a phase works on."""
    return "mkdir" if phase in ("mkdir", "rmdir") else "create"
