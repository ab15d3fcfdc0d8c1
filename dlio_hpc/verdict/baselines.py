"""Baselines: runs of a job. Later jobs with the same measurement key are compared with them.

A baseline is accepted or retired by a decision. A decision records the user, the time and the reason. Each decision is
a file in the folder of the archives. Such a file is written once and never changed. The state of a baseline follows
from all decisions together.
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

# Largest size of a decision file in bytes. The file holds the measurement key and the metrics of a job's runs.
_LONGEST = 16 << 20
_RETIRED = ".retired.json"
_ACCEPTED = ".json"
State = Literal["active", "replaced", "retired"]


class Accepted(Struct, frozen=True):
    """A decision that accepts a baseline. id: id of the baseline, JOB-xxxxxx. who: user@host. when: time in UTC.
    warnings: objections that --force overrode.
    """

    id: str
    group: Group
    message: str
    who: str
    when: str
    warnings: tuple[str, ...] = ()
    schema: Literal[1] = 1


class Retired(Struct, frozen=True):
    """A decision that retires a baseline. id: id of the baseline. who: user@host. when: time in UTC."""

    id: str
    message: str
    who: str
    when: str
    schema: Literal[1] = 1


class Decisions(NamedTuple):
    """All decisions in a folder of archives, oldest first."""

    accepted: tuple[Accepted, ...]
    retired: tuple[Retired, ...]


class Baseline(NamedTuple):
    """A baseline with its present state. by: id of the baseline that replaced it; None if it was not replaced. retired:
    the decision that retired it; None if it is not retired.
    """

    accepted: Accepted
    state: State
    by: str | None
    retired: Retired | None


def read(folder: Path) -> Decisions:
    """Read the decisions in a folder of archives. Raise ConfigError if a decision cannot be read, and InvalidRun if one
    is corrupted.
    """
    accepted, retired = [], []
    for path in rundir.matching(folder, f"{rundir.BASELINES}/[!.]*.json"):
        content = _content(path)
        try:
            if path.name.endswith(_RETIRED):
                retired.append(document.decode(content, Retired, str(path), InvalidRun))
            else:
                decision = document.decode(content, Accepted, str(path), InvalidRun)
                accepted.append(structs.replace(decision, group=run_groups.carried(decision.group)))
        except InvalidRun as fault:
            raise InvalidRun(
                f"{fault}; this file is not a record of a baseline, or is corrupted: repair it, or move it out of that "
                "directory"
            ) from fault
    return Decisions(
        tuple(sorted(accepted, key=lambda decision: (decision.when, decision.id))),
        tuple(sorted(retired, key=lambda decision: (decision.when, decision.id))),
    )


def _content(path: Path) -> bytes:
    try:
        return safe_folders.content(path, _LONGEST)
    except OSError as fault:
        raise ConfigError(f"cannot read {path}: {fault.strerror}") from fault


def baselines(decisions: Decisions) -> tuple[Baseline, ...]:
    """Return all baselines with their states. The newest baseline of a measurement key is active. If the newest
    baseline was retired, the measurement key has no active baseline.
    """
    ends = {retired.id: retired for retired in decisions.retired}
    states = []
    for place, accepted in enumerate(decisions.accepted):
        later = next((new for new in decisions.accepted[place + 1 :] if new.group.key == accepted.group.key), None)
        end = ends.get(accepted.id)
        if end is not None and (later is None or end.when <= later.when):
            states.append(Baseline(accepted, "retired", None, end))
        else:
            states.append(
                Baseline(accepted, "active" if later is None else "replaced", later.id if later else None, None)
            )
    return tuple(states)


def active(decisions: Decisions) -> tuple[Accepted, ...]:
    """Return the active baselines, at most one per measurement key."""
    return tuple(baseline.accepted for baseline in baselines(decisions) if baseline.state == "active")


def accept(folder: Path, entry: Entry, message: str, force: bool = False) -> tuple[Accepted, ...]:
    """Make a job the baseline of its measurement keys. For each measurement key with good runs on a single dataset,
    write a decision into `folder`. Return these decisions. Raise ConfigError if no measurement key has such runs, or if
    there are objections and `force` is False.
    """
    _check_message(message)
    groups = run_groups.of(entry)
    fit = [group for group in groups if group.good and run_groups.alone(groups, group)]
    if not fit:
        raise ConfigError(f"{entry.job} cannot be a baseline: {_nothing(entry, groups)}")
    against = [objections(entry, group) for group in fit]
    if not force and (faults := [objection for objected in against for objection in objected]):
        raise ConfigError(
            f"{entry.job} should not be a baseline: {faults[0]}; --force accepts it and records the objection"
        )
    accepted = [_accepted(group, message, tuple(objected)) for group, objected in zip(fit, against, strict=True)]
    for baseline in accepted:
        _write(folder, baseline.id + _ACCEPTED, baseline)
    return tuple(accepted)


def left_out(entry: Entry) -> list[str]:
    """Return the reasons why some runs of the job cannot become a baseline, one line per measurement key."""
    groups = run_groups.of(entry)
    doubled = dict.fromkeys(group.key.title for group in groups if not run_groups.alone(groups, group))
    lines = [
        f"{title} was measured on several datasets in the same configuration and gets no baseline" for title in doubled
    ]
    return lines + [f"{group.key.title} has no good run and gets no baseline" for group in groups if not group.good]


def objections(entry: Entry, group: Group) -> list[str]:
    """Return the objections to these runs as a baseline, one per line."""
    lines = []
    if group.faulty is not None:
        lines.append(f"{group.faulty.run} is not valid: {group.faulty.fault}")
    elif entry.fault is not None:
        lines.append(f"the job failed: {entry.fault}")
    if not group.is_of_storage:
        lines.append(f"the storage was not measured: {group.storage_words}")
    return lines


def _nothing(entry: Entry, groups: Sequence[Group]) -> str:
    """Return the reason why no run of the job can become a baseline."""
    if not groups:
        return f"it measured nothing{f' ({entry.fault})' if entry.fault else ''}"
    faulty = next((group.faulty for group in groups if group.faulty is not None), None)
    if faulty is not None:
        return f"it has no good run ({faulty.run}: {faulty.fault})"
    return "; ".join(left_out(entry))


def retire(folder: Path, name: str, message: str) -> Retired:
    """Write and return the decision that retires a baseline. name: id of the baseline, or name of its job. Raise
    ConfigError if the baseline is already retired.
    """
    _check_message(message)
    baseline = named(baselines(read(folder)), name, folder)
    if baseline.state == "retired":
        raise ConfigError(
            f"baseline {baseline.accepted.id} is retired already; see dlio-hpc baseline show {baseline.accepted.id}"
        )
    decision = Retired(baseline.accepted.id, message, _who(), units.utc_now(fraction=True))
    _write(folder, decision.id + _RETIRED, decision)
    return decision


def named(known: Sequence[Baseline], name: str, folder: Path) -> Baseline:
    """Return the baseline with the id `name`. If no baseline has this id, `name` is the name of a job: return the only
    active baseline of the job, or its only baseline if none is active. Raise ConfigError if there is no such baseline,
    or if there are several.
    """
    matching = [baseline for baseline in known if baseline.accepted.id == name] or [
        baseline for baseline in known if baseline.accepted.group.job == name
    ]
    matching = [baseline for baseline in matching if baseline.state == "active"] or matching
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise ConfigError(
            f"{name} has several baselines; give one of: {', '.join(baseline.accepted.id for baseline in matching)}"
        )
    raise ConfigError(f"no baseline {name} in {folder}; see dlio-hpc baseline list --archive {folder}")


def _check_message(message: str) -> None:
    if not message.strip():
        raise ConfigError("--message: give the reason; it is recorded with the baseline")


def _accepted(group: Group, message: str, warnings: tuple[str, ...]) -> Accepted:
    accepted = Accepted("", group, message, _who(), units.utc_now(fraction=True), warnings)
    digest = hashlib.sha256(document.encode(accepted)).hexdigest()[:6]
    return structs.replace(accepted, id=f"{group.job}-{digest}")


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{job_record.host()}"
    except (OSError, KeyError):  # a container where the user has no name
        return f"unknown@{job_record.host()}"


def _write(folder: Path, name: str, decision: Struct) -> None:
    target = folder / rundir.BASELINES / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        rundir.write(target, document.encode(decision))
    except OSError as fault:
        raise InfrastructureError(f"cannot write {target}: {fault.strerror or fault}") from fault
