"""Baselines: runs of a job. Later jobs with the same measurement key are compared with them.

A baseline is accepted or retired by a decision. A decision records the user, the time and the reason. Each decision is
a file in the folder of the archives. Such a file is written once and never changed. The state of a baseline follows
from all decisions together.
"""

import getpass
import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from dlio_hpc import document, units
from dlio_hpc.batch import job_record
from dlio_hpc.errors import ConfigError, InfrastructureError, InvalidRun
from dlio_hpc.files import rundir, safe_folders
from dlio_hpc.verdict import run_groups, signatures
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
    """The decisions in a folder of archives, oldest first. signers: who signed a decision, by the id of the baseline;
    empty if signatures are not checked. refused: a line for each decision that does not count, because nobody in
    `allowed_signers` has signed it.
    """

    accepted: tuple[Accepted, ...]
    retired: tuple[Retired, ...]
    signers: Mapping[str, str] = MappingProxyType({})
    refused: tuple[str, ...] = ()


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
    allowed = signatures.allowed()
    accepted, retired, signers, refused = [], [], {}, []
    for path in rundir.matching(folder, f"{rundir.BASELINES}/[!.]*.json"):
        content = _content(path)
        decision = _decoded(path, content)
        if allowed is not None:
            signer = signatures.signer(path, content, allowed)
            if signer is None:
                refused.append(f"{path} does not count: it has no valid signature of a key in {allowed}")
                continue
            signers[decision.id] = signer
        if isinstance(decision, Retired):
            retired.append(decision)
        else:
            accepted.append(structs.replace(decision, group=run_groups.carried(decision.group)))
    return Decisions(
        tuple(sorted(accepted, key=lambda decision: (decision.when, decision.id))),
        tuple(sorted(retired, key=lambda decision: (decision.when, decision.id))),
        signers,
        tuple(refused),
    )


def _decoded(path: Path, content: bytes) -> Accepted | Retired:
    kind: type[Accepted | Retired] = Retired if path.name.endswith(_RETIRED) else Accepted
    try:
        return document.decode(content, kind, str(path), InvalidRun)
    except InvalidRun as fault:
        raise InvalidRun(
            f"{fault}; this file is not a record of a baseline, or is corrupted: repair it, or move it out of that "
            "directory"
        ) from fault


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


def active_in(folder: Path, report: Callable[[str], None]) -> tuple[Accepted, ...]:
    """Return the active baselines of a folder, and report the decisions that do not count."""
    decisions = read(folder)
    for line in decisions.refused:
        report(f"note: {line}")
    return active(decisions)


def accept(
    folder: Path, entry: Entry, message: str, force: bool = False, key: Path | None = None
) -> tuple[Accepted, ...]:
    """Make a job the baseline of its measurement keys. For each measurement key with good runs on a single dataset,
    write a decision into `folder`. Return these decisions. Raise ConfigError if no measurement key has such runs, or if
    there are objections and `force` is False. key: SSH key that signs the decisions; None to leave them unsigned.
    """
    _check_message(message)
    _check_key(key)
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
        _write(folder, baseline.id + _ACCEPTED, baseline, key)
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


def retire(folder: Path, name: str, message: str, key: Path | None = None) -> Retired:
    """Write and return the decision that retires a baseline. name: id of the baseline, or name of its job. key: SSH key
    that signs the decision. Raise ConfigError if the baseline is already retired.
    """
    _check_message(message)
    _check_key(key)
    baseline = named(baselines(read(folder)), name, folder)
    if baseline.state == "retired":
        raise ConfigError(
            f"baseline {baseline.accepted.id} is retired already; see dlio-hpc baseline show {baseline.accepted.id}"
        )
    decision = Retired(baseline.accepted.id, message, _who(), units.utc_now(fraction=True))
    _write(folder, decision.id + _RETIRED, decision, key)
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


def _check_key(key: Path | None) -> None:
    """Raise ConfigError if decisions must be signed, but no key is given."""
    if key is None and (allowed := signatures.allowed()) is not None:
        raise ConfigError(
            f"decisions on baselines must be signed here, because {allowed} exists: give your SSH key with --sign, "
            "such as --sign ~/.ssh/id_ed25519"
        )


def _accepted(group: Group, message: str, warnings: tuple[str, ...]) -> Accepted:
    accepted = Accepted("", group, message, _who(), units.utc_now(fraction=True), warnings)
    digest = hashlib.sha256(document.encode(accepted)).hexdigest()[:6]
    return structs.replace(accepted, id=f"{group.job}-{digest}")


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{job_record.host()}"
    except (OSError, KeyError):  # a container where the user has no name
        return f"unknown@{job_record.host()}"


def _write(folder: Path, name: str, decision: Struct, key: Path | None) -> None:
    """Write a decision and, if a key is given, first its signature."""
    target = folder / rundir.BASELINES / name
    content = document.encode(decision)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        safe_folders.let_group_write(target.parent)
        if key is not None:
            _write_signature(target, content, key)
        rundir.write(target, content)
    except OSError as fault:
        raise InfrastructureError(f"cannot write {target}: {fault.strerror or fault}") from fault


def _write_signature(target: Path, content: bytes, key: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="dlio-hpc-") as folder:
        copy = Path(folder, target.name)
        copy.write_bytes(content)
        signatures.sign(copy, key)
        allowed = signatures.allowed()
        if allowed is not None and signatures.signer(copy, content, allowed) is None:
            raise ConfigError(
                f"--sign {key}: this key is not in {allowed}, so the decision would not count; nothing is written. "
                "Sign with a key of that file, or ask the facility to add yours"
            )
        signature = copy.with_name(copy.name + signatures.SUFFIX).read_bytes()
    rundir.write(target.with_name(target.name + signatures.SUFFIX), signature)
