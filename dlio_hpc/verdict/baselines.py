"""Baselines. A baseline consists of runs of a job. Later jobs with the same measurement key are compared with it.

A baseline is accepted or retired by a decision. A decision records the user, the time and the reason. Each decision is
a file in the folder of the archives. Such a file is written once and never changed. The state of a baseline follows
from all decisions together.

If decisions must be signed, a decision is valid only in the file to which it was written. Each decision therefore
contains its kind, its baseline and the path of its folder of archives. It also contains digests of the newest signed
decisions before it, so that a missing decision is detected (see _Chain).
"""

import getpass
import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError, InfrastructureError, InvalidRun
from dlio_hpc.batch import job_record
from dlio_hpc.files import rundir, safe_folders
from dlio_hpc.plan.study import Study
from dlio_hpc.verdict import decision_copies, run_groups, signatures
from dlio_hpc.verdict.history_entry import Entry
from dlio_hpc.verdict.run_groups import Group

# Largest size of a decision file in bytes. The file holds the measurement key and the metrics of a job's runs.
_LONGEST = 16 << 20
_RETIRED = ".retired.json"
# Reason why a signed decision of an earlier version does not count.
_EARLIER = "an earlier version signed it without its kind and its archives; make the decision again"
_ACCEPTED = ".json"
State = Literal["active", "replaced", "retired"]


class Accepted(Struct, frozen=True):
    """A decision that accepts a baseline. id: id of the baseline, JOB-xxxxxx. who: user@host. when: time in UTC.
    warnings: objections that --force overrode. kind, archive, previous: as in Retired.
    """

    id: str
    group: Group
    message: str
    who: str
    when: str
    warnings: tuple[str, ...] = ()
    kind: str = ""
    archive: str = ""
    previous: tuple[str, ...] = ()
    schema: Literal[1] = 1


class Retired(Struct, frozen=True):
    """A decision that retires a baseline. id: id of the baseline. who: user@host. when: time in UTC. kind: accept or
    retire. archive: path of the folder of archives, with symbolic links resolved. previous: digests of the newest
    signed decisions in the folder when this one was made. Decisions of earlier versions lack kind, archive and
    previous.
    """

    id: str
    message: str
    who: str
    when: str
    kind: str = ""
    archive: str = ""
    previous: tuple[str, ...] = ()
    schema: Literal[1] = 1


Decision = Accepted | Retired


class _Kind(Struct):
    kind: str = ""


class _File(NamedTuple):
    """A decision in its file. signer: name of the user who signed it; None if it is not signed, or if signatures are
    not checked.
    """

    path: Path
    content: bytes
    decision: Decision
    signer: str | None

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


class Decisions(NamedTuple):
    """The decisions in a folder of archives, oldest first. signers: name of the user who signed, by the id of the
    baseline; empty if signatures are not checked. refused: a line for each decision that is ignored, because nobody in
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
    counted, others, refused = _files(folder, allowed)
    chain = _Chain((), ()) if allowed is None else _chain(folder, allowed, counted, others)
    accepted = [_carried(file.decision) for file in counted if isinstance(file.decision, Accepted)]
    retired = [file.decision for file in counted if isinstance(file.decision, Retired)]
    return Decisions(
        tuple(sorted(accepted, key=lambda decision: (decision.when, decision.id))),
        tuple(sorted([*retired, *chain.retired], key=lambda decision: (decision.when, decision.id))),
        {file.decision.id: file.signer for file in counted if file.signer is not None},
        (*refused, *chain.lines),
    )


def _files(folder: Path, allowed: Path | None) -> tuple[list[_File], list[_File], list[str]]:
    """Return the valid decisions, the other decisions, and a line for each of the other decisions. allowed: file
    allowed_signers; None if signatures are not checked.
    """
    counted, others, refused = [], [], []
    for path in rundir.matching(folder, f"{rundir.BASELINES}/[!.]*.json"):
        content = _content(path)
        kind = _kind(content)
        if kind and kind != _kind_of(path):
            refused.append(f"{path} is ignored: it is a copy of a decision to {kind} a baseline")
            continue
        decision = _decoded(path, content)
        signer = None if allowed is None else signatures.signer(path, content, allowed)
        file = _File(path, content, decision, signer)
        fault = _misplaced(file, folder if allowed is not None else None)
        if allowed is not None and signer is None:
            fault = f"it has no valid signature of a key in {allowed}"
        if fault:
            refused.append(f"{path} is ignored: {fault}")
            others.append(file)
            continue
        if allowed is not None:
            decision_copies.keep(folder, path, content)
        counted.append(file)
    return counted, others, refused


def _kind(content: bytes) -> str:
    try:
        return serialization.decode(content, _Kind, "decision", InvalidRun).kind
    except InvalidRun:
        return ""


def _kind_of(path: Path) -> str:
    return "retire" if path.name.endswith(_RETIRED) else "accept"


def _misplaced(file: _File, folder: Path | None) -> str:
    """Return the reason why a decision does not belong in its file, or "". folder: folder of the archives if the
    decision must name it, otherwise None.
    """
    decision = file.decision
    if not decision.kind:
        return _EARLIER if folder is not None else ""
    if file.path.name != decision.id + (_RETIRED if decision.kind == "retire" else _ACCEPTED):
        return f"it is a copy of the decision to {decision.kind} {decision.id}"
    if folder is not None and decision.archive != os.path.realpath(folder):
        return f"it was made for the archives in {decision.archive}"
    return ""


def _carried(decision: Accepted) -> Accepted:
    return structs.replace(decision, group=run_groups.of_newest_night(run_groups.carried(decision.group)))


class _Chain(NamedTuple):
    """Consequences of missing signed decisions. A decision is missing if its file or its signature was removed or
    changed. retired: retirements that still apply, and retirements of baselines that would otherwise become active
    again. lines: a line for each missing decision.
    """

    retired: tuple[Retired, ...]
    lines: tuple[str, ...]


def _chain(folder: Path, allowed: Path, counted: Sequence[_File], others: Sequence[_File]) -> _Chain:
    """Find signed decisions that were removed. A removed decision is detected if a later signed decision names it, or
    if this user has a copy of it.
    """
    copies = [
        _File(copy.path, copy.content, _decoded(copy.path, copy.content), None)
        for copy in decision_copies.valid(folder, allowed)
    ]
    copies = [file for file in copies if not _misplaced(file, folder)]
    by_digest = {file.digest: file for file in (*others, *copies)}
    present = {file.digest for file in counted}
    lost = {file.digest: file for file in copies if file.digest not in present}
    gaps: dict[str, Decision] = {}
    named = [(digest, file.decision) for file in (*counted, *lost.values()) for digest in file.decision.previous]
    while named:
        digest, later = named.pop()
        if digest in present or digest in lost:
            continue
        if digest in by_digest:
            lost[digest] = by_digest[digest]
            named += [(earlier, lost[digest].decision) for earlier in lost[digest].decision.previous]
        elif digest not in gaps or later.when > gaps[digest].when:
            gaps[digest] = later
    accepted = [_carried(file.decision) for file in counted if isinstance(file.decision, Accepted)]
    retired, lines = [], []
    reported = {file.path.name for file in others}
    for file in lost.values():
        decision = file.decision
        where = folder / rundir.BASELINES / file.path.name
        if isinstance(decision, Retired):
            retired.append(decision)
            if where.name not in reported:
                lines.append(f"{where} was removed: the baseline stays retired; {_restore(file.path)}")
            continue
        key = _carried(decision).group.key
        older = [other for other in accepted if other.group.key == key and other.when < decision.when]
        retired += [_withdrawn(other, f"{decision.id} replaced it, and was removed") for other in older]
        if where.name not in reported:
            lines.append(f"{where} was removed: no older baseline takes its place; {_restore(file.path)}")
    for later in gaps.values():
        older = [other for other in accepted if other.when < later.when and other.id != later.id]
        retired += [_withdrawn(other, "a later decision is missing") for other in older]
        lines.append(
            f"the decision to {later.kind} {later.id} names an earlier signed decision, which is missing from "
            f"{folder / rundir.BASELINES}: earlier baselines are ignored "
            f"({', '.join(other.id for other in older) or 'there is none'}); restore the file, or accept them again"
        )
    return _Chain(tuple(retired), tuple(lines))


def _restore(copy: Path) -> str:
    return f"restore it from {copy}, or remove that copy to forget the decision"


def _withdrawn(accepted: Accepted, reason: str) -> Retired:
    return Retired(accepted.id, reason, accepted.who, accepted.when)


def _heads(folder: Path) -> tuple[str, ...]:
    """Return the digests of the newest signed decisions in a folder. These are the decisions that no other signed
    decision names.
    """
    allowed = signatures.allowed()
    signed = [
        file
        for file in _files(folder, allowed)[0]
        if file.signer is not None
        or (allowed is None and file.path.with_name(file.path.name + signatures.SUFFIX).exists())
    ]
    named = {digest for file in signed for digest in file.decision.previous}
    return tuple(sorted(file.digest for file in signed if file.digest not in named))


def _decoded(path: Path, content: bytes) -> Decision:
    kind: type[Decision] = Retired if path.name.endswith(_RETIRED) else Accepted
    try:
        return serialization.decode(content, kind, str(path), InvalidRun)
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
    """Return the active baselines of a folder, and report decisions that are ignored."""
    decisions = read(folder)
    for line in decisions.refused:
        report(f"note: {line}")
    return active(decisions)


def accept(
    folder: Path,
    entry: Entry,
    message: str,
    force: bool = False,
    key: Path | None = None,
    earlier: Sequence[Entry] = (),
    past: Sequence[Entry] = (),
    study: Study | None = None,
) -> tuple[Accepted, ...]:
    """Make a job the baseline of its measurement keys. For each measurement key with good runs on a single dataset,
    write a decision into `folder`. Return these decisions. Raise ConfigError if no measurement key has such runs, or if
    there are objections and `force` is False. key: SSH key that signs the decisions; None to leave them unsigned.
    earlier: the earlier nights of the job's study, oldest first. If the job has no good run of a measurement key, the
    newest earlier night with a good run becomes the baseline. past: the history, with or without the job. study: study
    of the job; None if the job belongs to no study.
    """
    from dlio_hpc.verdict import baseline_candidates  # it needs numpy, which most uses of baselines do not

    _check_message(message)
    _check_key(key)
    candidates = baseline_candidates.of((entry, *reversed(earlier)))
    if not candidates:
        raise ConfigError(f"{entry.job} cannot be a baseline: {baseline_candidates.nothing(entry)}")
    decisions = read(folder)
    against = baseline_candidates.objections(entry, candidates, past, study, earlier, active(decisions))
    if not force and (faults := [objection for objected in against for objection in objected]):
        raise ConfigError(
            f"{entry.job} should not be a baseline: {faults[0]}; --force accepts it and records the objection"
        )
    _check_clock(folder, decisions)
    accepted = []
    for candidate, objected in zip(candidates, against, strict=True):
        baseline = _accepted(candidate.group, message, tuple(objected), folder, key)
        _write(folder, baseline.id + _ACCEPTED, baseline, key)
        accepted.append(baseline)
    return tuple(accepted)


def retire(folder: Path, name: str, message: str, key: Path | None = None) -> Retired:
    """Write and return the decision that retires a baseline. name: id of the baseline, or name of its job or study.
    key: SSH key that signs the decision. Raise ConfigError if the baseline is already retired.
    """
    _check_message(message)
    _check_key(key)
    decisions = read(folder)
    baseline = named(baselines(decisions), name, folder)
    if baseline.state == "retired":
        raise ConfigError(
            f"baseline {baseline.accepted.id} is retired already; see dlio-hpc baseline show {baseline.accepted.id}"
        )
    _check_clock(folder, decisions)
    decision = Retired(
        baseline.accepted.id, message, _who(), units.utc_now(fraction=True), "retire", os.path.realpath(folder),
        () if key is None else _heads(folder),
    )  # fmt: skip
    _write(folder, decision.id + _RETIRED, decision, key)
    return decision


def named(known: Sequence[Baseline], name: str, folder: Path) -> Baseline:
    """Return the baseline with the id `name`. If no baseline has this id, `name` is the name of a job or a study:
    return its only active baseline, or its only baseline if none is active. Raise ConfigError if there is no such
    baseline, or if there are several.
    """
    matching = (
        [baseline for baseline in known if baseline.accepted.id == name]
        or [baseline for baseline in known if baseline.accepted.group.job == name]
        or [baseline for baseline in known if baseline.accepted.group.study == name]
    )
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


def _check_clock(folder: Path, decisions: Decisions) -> None:
    """Raise ConfigError if a decision has a date in the future. A new decision would be older than that decision, and
    so have no effect.
    """
    now = units.utc_now(fraction=True)
    dates = [(accepted.when, accepted.id) for accepted in decisions.accepted]
    dates += [(retired.when, retired.id) for retired in decisions.retired]
    when, name = max(dates, default=("", ""))
    if when > now:
        raise ConfigError(
            f"the decision about {name} in {folder / rundir.BASELINES} is dated {when}, but it is {now} here: a new "
            "decision would have no effect. Correct the clocks; if that decision has a wrong time, move its file away"
        )


def _accepted(group: Group, message: str, warnings: tuple[str, ...], folder: Path, key: Path | None) -> Accepted:
    accepted = Accepted(
        "", group, message, _who(), units.utc_now(fraction=True), warnings, "accept", os.path.realpath(folder),
        () if key is None else _heads(folder),
    )  # fmt: skip
    digest = hashlib.sha256(serialization.encode(accepted)).hexdigest()[:6]
    return structs.replace(accepted, id=f"{group.job}-{digest}")


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{job_record.host()}"
    except (OSError, KeyError):  # a container where the user has no name
        return f"{os.getuid()}@{job_record.host()}"


def _write(folder: Path, name: str, decision: Struct, key: Path | None) -> None:
    """Write a decision and, if a key is given, first its signature."""
    target = folder / rundir.BASELINES / name
    content = serialization.encode(decision)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        safe_folders.let_group_write(target.parent)
        if key is not None:
            _write_signature(target, content, key)
        rundir.write(target, content)
    except OSError as fault:
        raise InfrastructureError(f"cannot write {target}: {fault.strerror or fault}") from fault
    if key is not None:
        decision_copies.keep(folder, target, content)


def _write_signature(target: Path, content: bytes, key: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="dlio-hpc-") as folder:
        copy = Path(folder, target.name)
        copy.write_bytes(content)
        signatures.sign(copy, key)
        allowed = signatures.allowed()
        if allowed is not None and signatures.signer(copy, content, allowed) is None:
            raise ConfigError(
                f"--sign {key}: this key is not in {allowed}, so the decision would be ignored; nothing is written. "
                "Sign with a key of that file, or ask the facility to add yours"
            )
        signature = copy.with_name(copy.name + signatures.SUFFIX).read_bytes()
    rundir.write(target.with_name(target.name + signatures.SUFFIX), signature)
