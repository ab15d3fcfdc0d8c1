"""The command lfs. A path that is not on Lustre is not for it: some versions leave files behind there. It is judged by
its exit code alone, never by its texts, which differ from version to version.
"""

import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from dlio_hpc import command, document
from dlio_hpc.config import lustre_layout
from dlio_hpc.config.lustre_layout import Layout, Version
from dlio_hpc.errors import ConfigError, InfrastructureError


class Part(Struct, frozen=True):
    """A component of a layout as it was found; a plain layout has one. `end` None: the end of the file. `first`: the
    target of its first stripe, -1: any. `targets`: where the stripes of a file lie; of a folder, and of what is not
    written yet, none.
    """

    end: int | None
    stripe_count: int
    stripe_size: int
    pattern: str
    pool: str | None
    first: int
    targets: tuple[int, ...] = ()


Found = tuple[Part, ...]
# In place of flags: it does not answer.
DOWN = "down"
_POOL = re.compile(r"^([ -]*(?:lmm_)?pool:[ ]+)([\w.-]+)[ ]*$", re.MULTILINE)
# ESRCH: the file system keeps no quotas of this kind.
_OFF = 3


class Target(Struct, frozen=True):
    """An object storage target (OST). flags: letters of lfs-df(1), D degraded, R read-only, N no new
    files, S no space, I no inodes; or DOWN.
    """

    number: int
    flags: str


class Quota(NamedTuple):
    """A user's, group's or project's bytes and files, used and allowed; 0: no limit."""

    used_bytes: int
    most_bytes: int
    used_files: int
    most_files: int


def version() -> Version:
    """Of the client; Missing where there is no lfs."""
    answer = command.ask("lfs", "--version")
    match = re.match(r"lfs (\d+)\.(\d+)(?:\.(\d+))?", answer.out)
    if answer.code or match is None:
        raise command.unexplained("lfs --version", answer)
    return tuple(int(part) for part in match.groups() if part is not None)


def check_version(asked: Layout, client: Version) -> None:
    """ConfigError when the client is too old for what is asked."""
    for feature, least in lustre_layout.needs(asked):
        if client < least:
            wanted, have = (".".join(map(str, number)) for number in (least, client))
            raise ConfigError(f"layout: {feature} needs a Lustre client of {wanted} or newer, this one is {have}")


def _setstripe(folder: str, asked: Layout) -> list[str]:
    return ["lfs", "setstripe", *lustre_layout.arguments(asked), folder]


def command_line(folder: str, asked: Layout) -> str:
    """The command of set_layout() as a person would type it."""
    return shlex.join(_setstripe(folder, asked))


def set_layout(folder: Path, asked: Layout) -> None:
    """Set the layout that new files in `folder` get; files that lie there stay as they are."""
    answer = command.ask(*_setstripe(str(folder), asked))
    if answer.code:
        raise InfrastructureError(f"{command_line(str(folder), asked)}: {answer.words}")


def folder_layout(folder: Path) -> Found:
    """What new files in `folder` get."""
    return _getstripe("-d", str(folder))


def file_layout(path: str) -> Found:
    """How a file lies."""
    return _getstripe(path)


def _getstripe(*arguments: str) -> Found:
    answer = command.ask("lfs", "getstripe", *arguments[:-1], "-y", arguments[-1])
    if answer.code:
        raise command.unexplained(f"lfs getstripe {arguments[-1]}", answer)
    return parse(answer.out, f"lfs getstripe {arguments[-1]}")


def parse(text: str, source: str) -> Found:
    """YAML of lfs-getstripe(1): keys of a file begin with lmm_, those of a folder do not; components are a list since
    2.16, before that a mapping each. The name of a pool is text, though lfs writes 1e5 and null without quotes.
    """
    data = document.parse_yaml(_POOL.sub(r'\1"\2"', text), source)
    if not isinstance(data, dict):
        raise InfrastructureError(f"{source}: {str(data)[:200]!r} is no layout")
    if "lcm_layout_gen" not in data:
        return (_part(data, None, source),)
    parts = data.get("components") or [value for key, value in data.items() if re.fullmatch(r"component\d+", str(key))]
    try:
        return tuple(_part(part["sub_layout"], part["lcme_extent.e_end"], source) for part in parts)
    except (KeyError, TypeError) as fault:
        raise InfrastructureError(f"{source}: no layout that we know, {fault}") from fault


def _part(data: dict[str, Any], end: object, source: str) -> Part:
    try:
        values = {str(key).removeprefix("lmm_"): value for key, value in data.items()}
        objects = values.get("objects") or []
        return Part(
            end=end if isinstance(end, int) else None,
            stripe_count=int(values["stripe_count"]),
            stripe_size=int(values.get("stripe_size", 0)),
            pattern=str(values.get("pattern", "raid0")),
            pool=str(values["pool"]) if values.get("pool") else None,
            first=int(values.get("stripe_offset", -1)),
            targets=tuple(int(one["l_ost_idx"]) for one in objects),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        raise InfrastructureError(f"{source}: no layout that we know, {fault}") from fault


def targets(path: Path) -> list[Target]:
    """The storage targets of the file system; lfs-df(1). Inactive ones are not among them; of one that does not answer,
    which gives the command its exit code, there is a line with the reason.
    """
    answer = command.ask("lfs", "df", str(path))
    rows = re.findall(r"^\S+_UUID +\d+ +\d+ +\d+ .*\[OST:(\d+)\] ?([A-Z?]*)", answer.out, re.MULTILINE)
    if not rows:
        raise command.unexplained(f"lfs df {path}", answer)
    down = re.findall(r"^\S+-OST([0-9a-fA-F]{4})_UUID +: (?!inactive)", answer.out, re.MULTILINE)
    there = [Target(int(index), flags) for index, flags in rows]
    return [*there, *(Target(int(number, 16), DOWN) for number in down)]


def project(folder: Path) -> str | None:
    """The project id of a folder; None where it has none."""
    answer = command.ask("lfs", "project", "-d", str(folder))
    words = answer.out.split()
    return words[0] if not answer.code and words and words[0].isdigit() and words[0] != "0" else None


def pool_size(fsname: str, pool: str) -> int:
    """Targets of a pool; ConfigError when there is no such pool."""
    answer = command.ask("lfs", "pool_list", f"{fsname}.{pool}")
    if answer.code:
        known = ", ".join(line.partition(".")[2] for line in command.ask("lfs", "pool_list", fsname).lines[1:])
        raise ConfigError(f"layout: file system {fsname} has no pool {pool!r}; it has {known or 'none'}")
    return len([line for line in answer.lines[1:] if line.strip()])


def quota(whose: str, name: str, path: Path) -> Quota | None:
    """None where no quotas are kept; lfs-quota(1), the row's last eight words. `whose`: -u, -g or -p."""
    answer = command.ask("lfs", "quota", "-q", whose, name, str(path))
    if answer.code == _OFF:
        return None
    if answer.code:
        raise command.unexplained(f"lfs quota {whose} {name} {path}", answer)
    rows = [line.split() for line in answer.lines]
    words = [word for row in rows[:2] for word in row][1:9]
    if len(words) < 8:
        return None
    numbers = [int(re.sub(r"\D", "", word) or 0) for word in words]
    used, soft, hard, _, files, soft_files, hard_files, _ = numbers
    return Quota(used * 1024, (hard or soft) * 1024, files, hard_files or soft_files)
