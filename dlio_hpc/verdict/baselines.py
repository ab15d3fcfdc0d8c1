"""Baselines: which job's runs later ones of the same key are compared with, since when, who accepted it, and why.

Every decision is a small file of its own beside the archives, written once and never changed; what holds follows from
all of them.
"""

import getpass
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from dlio_hpc import document, units
from dlio_hpc.batch import job_record
from dlio_hpc.errors import ConfigError, InfrastructureError, InvalidRun
from dlio_hpc.files import rundir, safe_folders
from dlio_hpc.verdict import run_groups
from dlio_hpc.verdict.history_entry import Entry
from dlio_hpc.verdict.run_groups import Group

# Bytes of a decision, which has the key and the figures of a job's runs.
_LONGEST = 16 << 20
_RETIRED = ".retired.json"
_ACCEPTED = ".json"
State = Literal["active", "replaced", "retired"]


class Accepted(Struct, frozen=True):
    """id: JOB-xxxxxx. who: user@host; when: UTC. warnings: what spoke against it, where --force said to take it."""

    id: str
    group: Group
    message: str
    who: str
    when: str
    warnings: tuple[str, ...] = ()
    schema: Literal[1] = 1


class Retired(Struct, frozen=True):
    """id: of the baseline."""

    id: str
    message: str
    who: str
    when: str
    schema: Literal[1] = 1


class Decisions(NamedTuple):
    """All that were taken in an archive's folder, in the order in which they were."""

    accepted: tuple[Accepted, ...]
    retired: tuple[Retired, ...]


class Baseline(NamedTuple):
    """An accepted one as it is now. by: the one that replaced it; retired: the decision that ended it."""

    accepted: Accepted
    state: State
    by: str | None
    retired: Retired | None


def read(folder: Path) -> Decisions:
    """The decisions beside the archives in `folder`; ConfigError where one cannot be read, InvalidRun where one is
    damaged.
    """
    accepted, retired = [], []
    for path in rundir.matching(folder, f"{rundir.BASELINES}/[!.]*.json"):
        content = _content(path)
        try:
            if path.name.endswith(_RETIRED):
                retired.append(document.decode(content, Retired, str(path), InvalidRun))
            else:
                accepted.append(document.decode(content, Accepted, str(path), InvalidRun))
        except InvalidRun as fault:
            raise InvalidRun(f"{fault}; it is no decision: mend it, or move it out of that folder") from fault
    return Decisions(
        tuple(sorted(accepted, key=lambda one: (one.when, one.id))),
        tuple(sorted(retired, key=lambda one: (one.when, one.id))),
    )


def _content(path: Path) -> bytes:
    try:
        return safe_folders.content(path, _LONGEST)
    except OSError as fault:
        raise ConfigError(f"cannot read {path}: {fault.strerror}") from fault


def baselines(decisions: Decisions) -> tuple[Baseline, ...]:
    """Of one key the newest holds, unless it was retired: then none does, whatever was accepted before it."""
    ends = {each.id: each for each in decisions.retired}
    found = []
    for place, one in enumerate(decisions.accepted):
        later = next((each for each in decisions.accepted[place + 1 :] if each.group.key == one.group.key), None)
        end = ends.get(one.id)
        if end is not None and (later is None or end.when <= later.when):
            found.append(Baseline(one, "retired", None, end))
        else:
            found.append(Baseline(one, "active" if later is None else "replaced", later.id if later else None, None))
    return tuple(found)


def active(decisions: Decisions) -> tuple[Accepted, ...]:
    """One a key at most."""
    return tuple(each.accepted for each in baselines(decisions) if each.state == "active")


def accept(folder: Path, entry: Entry, message: str, force: bool = False) -> tuple[Accepted, ...]:
    """A baseline of each key that the job measured, written into `folder`; ConfigError where the job is not fit to be
    one, unless forced, and where it has no good run of any key, forced or not.
    """
    _check_message(message)
    found = run_groups.of(entry)
    fit = [group for group in found if group.good and run_groups.alone(found, group)]
    if not fit:
        raise ConfigError(f"{entry.job} cannot be a baseline: {_nothing(entry, found)}")
    against = [objections(entry, group) for group in fit]
    if not force and (faults := [words for told in against for words in told]):
        raise ConfigError(f"{entry.job} should be no baseline: {faults[0]}; --force accepts it and records that")
    made = [_accepted(group, message, tuple(told)) for group, told in zip(fit, against, strict=True)]
    for one in made:
        _write(folder, one.id + _ACCEPTED, one)
    return tuple(made)


def left_out(entry: Entry) -> list[str]:
    """Why some of the job's runs can be no baseline, a line each."""
    found = run_groups.of(entry)
    doubled = dict.fromkeys(group.key.title for group in found if not run_groups.alone(found, group))
    told = [f"{title} was measured on several datasets, which are alike by their key: no baseline" for title in doubled]
    return told + [f"{group.key.title} has no good run: no baseline" for group in found if not group.good]


def objections(entry: Entry, group: Group) -> list[str]:
    """What speaks against these runs as a reference."""
    told = []
    if group.faulty is not None:
        told.append(f"{group.faulty.run} is no measurement: {group.faulty.fault}")
    elif entry.fault is not None:
        told.append(f"the job went wrong: {entry.fault}")
    if not group.is_of_storage:
        told.append(f"the storage was not measured: {group.storage_words}")
    return told


def _nothing(entry: Entry, found: Sequence[Group]) -> str:
    if not found:
        return f"it measured nothing{f' ({entry.fault})' if entry.fault else ''}"
    faulty = next((group.faulty for group in found if group.faulty is not None), None)
    if faulty is not None:
        return f"it has no good run ({faulty.run}: {faulty.fault})"
    return "; ".join(left_out(entry))


def retire(folder: Path, name: str, message: str) -> Retired:
    """End the baseline `name`, an id or the job's name; ConfigError where it holds no longer."""
    _check_message(message)
    one = named(baselines(read(folder)), name, folder)
    if one.state == "retired":
        raise ConfigError(f"baseline {one.accepted.id} was retired already; dlio-hpc baseline show {one.accepted.id}")
    made = Retired(one.accepted.id, message, _who(), units.utc_now(fraction=True))
    _write(folder, made.id + _RETIRED, made)
    return made


def named(found: Sequence[Baseline], name: str, folder: Path) -> Baseline:
    """By its id, or by its job's name where that has one baseline only."""
    told = [one for one in found if one.accepted.id == name] or [one for one in found if one.accepted.group.job == name]
    told = [one for one in told if one.state == "active"] or told
    if len(told) == 1:
        return told[0]
    if told:
        raise ConfigError(f"{name} has several baselines; name one: {', '.join(one.accepted.id for one in told)}")
    raise ConfigError(f"no baseline {name} in {folder}; see dlio-hpc baseline list --archive {folder}")


def _check_message(message: str) -> None:
    if not message.strip():
        raise ConfigError("--message: state the reason; whoever reads the baseline later will ask")


def _accepted(group: Group, message: str, warnings: tuple[str, ...]) -> Accepted:
    made = Accepted("", group, message, _who(), units.utc_now(fraction=True), warnings)
    digest = hashlib.sha256(document.encode(made)).hexdigest()[:6]
    return structs.replace(made, id=f"{group.job}-{digest}")


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{job_record.host()}"
    except (OSError, KeyError):  # a container without a name for the user
        return f"unknown@{job_record.host()}"


def _write(folder: Path, name: str, decision: Struct) -> None:
    target = folder / rundir.BASELINES / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        rundir.write(target, document.encode(decision))
    except OSError as fault:
        raise InfrastructureError(f"cannot write {target}: {fault.strerror or fault}") from fault
