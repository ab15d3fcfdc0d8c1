"""What would go wrong, looked for from the login node before a job waits for it: one finding a line."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec.structs import replace

from dlio_hpc import (
    cost,
    dataset,
    filesystem,
    folders,
    layout,
    limits,
    packages,
    packing,
    plan,
    results,
    rundir,
    units,
    workload,
)
from dlio_hpc.batch import job, jobscript, launchers
from dlio_hpc.batch.cancel import cancel
from dlio_hpc.batch.schedulers import SCHEDULERS
from dlio_hpc.batch.schedulers.common import user
from dlio_hpc.batch.state import await_release
from dlio_hpc.batch.submit import check as check_submission
from dlio_hpc.batch.submit import submit
from dlio_hpc.batch.watch import Watched, watch
from dlio_hpc.command import Missing, Unanswered
from dlio_hpc.darshan import preload as darshan
from dlio_hpc.darshan import verdict
from dlio_hpc.errors import ConfigError, DlioError, InfrastructureError, about, kind_of
from dlio_hpc.layout import Layout
from dlio_hpc.lustre import lfs
from dlio_hpc.plan import Plan, Run
from dlio_hpc.site import Remote
from dlio_hpc.study import Asked, Request

_LAUNCH_WALLTIME, _RANKS_A_NODE = units.Walltime(120), 2


class Finding(NamedTuple):
    """`fault`: a job would fail of it, or its figures be worth nothing; note: a person should know."""

    verdict: Literal["ok", "note", "fault"]
    what: str
    text: str
    exit_code: int = 0


def look(plans: Sequence[Plan], patience_s: float | None) -> Iterator[Finding]:
    """All findings about a study, as they come. With `patience_s` ranks are launched too, in a job of their own, which
    may wait so long.
    """
    made = plans[0]
    needed = plan.datasets(run for each in plans for run in each.runs)
    yield from _limits(plans)
    yield from _guarded("submission", lambda: _submission(plans))
    yield from _guarded("folders", lambda: _folders(made))
    for folder in made.folders:
        yield from _storage(made.site.layout, folder, [run for run in needed if os.path.dirname(run.dataset) == folder])
    yield from _guarded("batch system", lambda: _batch_system(made))
    yield from _guarded("preload", lambda: _preload(made))
    if patience_s is None:
        yield Finding("note", "launch", "not tried")
    else:
        yield from _guarded("launch", lambda: _launch(made, packages.measured(plans), patience_s))


def _storage(asked: Layout | None, folder: str, needed: Sequence[Run]) -> Iterator[Finding]:
    """The file system under test, below whose `folder` some datasets will lie."""
    checks: tuple[tuple[str, Callable[[], Iterator[Finding]]], ...] = (
        ("file system", lambda: _file_system(folder)),
        ("layout", lambda: _layout(asked, folder)),
        ("targets", lambda: _targets(asked, folder)),
        ("space", lambda: _space(folder, needed)),
        ("quota", lambda: _quota(folder, needed)),
    )
    for what, check in checks:
        yield from _guarded(what, check)


def _guarded(what: str, check: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    try:
        yield from check()
    except DlioError as fault:
        yield Finding("fault", what, str(fault), fault.exit_code)
    except OSError as fault:
        yield Finding("fault", what, str(fault), DlioError.exit_code)


def _limits(plans: Sequence[Plan]) -> Iterator[Finding]:
    """Of the site and its queue; account, time and the ranks of a node among them."""
    made = plans[0]
    faults = {str(fault): fault for each in plans for fault in limits.faults(each)}
    faults |= {str(fault): fault for fault in limits.of_cost(made.site, cost.of_jobs(plans))}
    for words, fault in faults.items():
        yield Finding("fault", "limits", words, fault.exit_code)
    for note in dict.fromkeys(note for one in plans for note in one.notes):
        yield Finding("note", "limits", note)
    if not faults:
        yield Finding(
            "ok", "limits", f"{made.nodes} node(s) for {units.format_walltime(made.walltime)}: within the profile's"
        )


def _file_system(folder: str) -> Iterator[Finding]:
    found = filesystem.of(Path(folder))
    where = f"{folder}: {found.kind}" + (f", mounted at {found.mount} from {found.source}" if found.mount else "")
    if found.kind == "tmpfs":
        yield Finding("note", "file system", f"{where}; this is memory, not storage")
    else:
        yield Finding("ok", "file system", where)


def _folders(made: Plan) -> Iterator[Finding]:
    """A file can be made in each, or in the nearest folder above that exists."""
    sound = True
    data = [("data" if len(made.folders) == 1 else "ab", folder) for folder in made.folders]
    for name, folder in (*data, ("runs", os.path.dirname(made.directory)), ("archive", made.archive)):
        if (why := filesystem.unwritable(folder)) is not None:
            sound = False
            yield Finding("fault", "folders", f"--{name} {folder}: {why}", InfrastructureError.exit_code)
    if sound:
        yield Finding("ok", "folders", "data, runs and archive can be written")


def _layout(asked: Layout | None, folder: str) -> Iterator[Finding]:
    found = filesystem.of(Path(folder))
    if not found.is_lustre:
        words = "the site's layout will not be set" if asked else "nothing to set"
        yield Finding("note" if asked else "ok", "layout", f"{found.kind} is not Lustre: {words}")
        return
    try:
        client = lfs.version()
    except Missing as fault:
        yield Finding("fault" if asked else "note", "layout", str(fault), InfrastructureError.exit_code if asked else 0)
        return
    number = ".".join(map(str, client))
    if asked is None:
        yield Finding("ok", "layout", f"left alone; Lustre client {number}")
        return
    lfs.check_version(asked, client)
    yield Finding("ok", "layout", f"{layout.describe(asked)}; Lustre client {number}")


def _targets(asked: Layout | None, folder: str) -> Iterator[Finding]:
    found = filesystem.of(Path(folder))
    if not found.is_lustre:
        return
    targets = lfs.targets(filesystem.existing(Path(folder)))
    flagged = [f"{target.number} ({target.flags})" for target in targets if target.flags]
    if flagged:
        words = f"{len(flagged)} of {len(targets)} targets are flagged: {', '.join(flagged)}"
        yield Finding(
            "note",
            "targets",
            f"{words} (D degraded, R read-only, N no new files, S no space, I no inodes, down: no answer)",
        )
    else:
        yield Finding("ok", "targets", f"{len(targets)} targets, none degraded, full or read-only")
    if asked is None:
        return
    for pool in filter(None, layout.pools(asked)):
        yield Finding("ok", "pool", f"{pool} has {lfs.pool_size(found.fsname, pool)} targets")
    most = max((part.stripe_count or 0 for part in (asked.components or (asked,))), default=0)
    if most > len(targets) and not asked.overstripe:
        raise ConfigError(
            f"layout: {most} stripes, the file system has {len(targets)} targets; files would get fewer than asked"
        )


def _space(folder: str, needed: Sequence[Run]) -> Iterator[Finding]:
    yield Finding("ok", "space", dataset.check_space(needed, filesystem.existing(Path(folder))))


def _quota(folder: str, needed: Sequence[Run]) -> Iterator[Finding]:
    """Of the user, of the group that the folder belongs to, and of its project."""
    found = filesystem.of(Path(folder))
    if not found.is_lustre:
        yield Finding("note", "quota", f"not looked at on {found.kind}")
        return
    there = filesystem.existing(Path(folder))
    owners = [("-u", "user", user()), ("-g", "group", there.group()), ("-p", "project", lfs.project(there))]
    for option, what, name in owners:
        if name is not None:
            yield _one_quota(needed, option, f"{what} {name}", name, there)


def _one_quota(needed: Sequence[Run], option: str, what: str, name: str, there: Path) -> Finding:
    try:
        kept = lfs.quota(option, name, there)
    except Unanswered as fault:
        return Finding("note", "quota", f"{what}: not told, {fault}")
    if kept is None:
        return Finding("ok", "quota", f"{what}: none is kept")
    wanted, files = dataset.needs_of_all(needed)
    for need, used, most, unit in (
        (wanted, kept.used_bytes, kept.most_bytes, "bytes"),
        (files, kept.used_files, kept.most_files, "files"),
    ):
        if most and used + need > most:
            text = f"{what}: {used} of {most} {unit} are used, the dataset needs {need:.0f} more"
            return Finding("fault", "quota", text, ConfigError.exit_code)
    limit = units.format_size(kept.most_bytes) if kept.most_bytes else "no limit"
    return Finding("ok", "quota", f"{what}: {units.format_size(kept.used_bytes)} used, {limit}")


def _batch_system(made: Plan) -> Iterator[Finding]:
    """Queue, account and limits, as the batch system sees them."""
    script = jobscript.render(made)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, rundir.SCRIPT)
        with about(path):
            path.write_text(script)
        path.chmod(0o755)
        words = SCHEDULERS[made.site.scheduler].probe(made, path)
    yield Finding("ok", "batch system", words)


def _submission(plans: Sequence[Plan]) -> Iterator[Finding]:
    check_submission(plans)
    yield Finding("ok", "submission", f"{len(plans)} more job(s) of yours can be submitted from here")


def _preload(made: Plan) -> Iterator[Finding]:
    """Libraries for the ranks must be there on this node too, as far as it shares its software with theirs."""
    for library in made.site.preload:
        if why := _unfit(library):
            raise InfrastructureError(f"preload: {why}")
        yield Finding("ok", "preload", f"{library} is there")
    if made.site.darshan is None:
        yield Finding("note", "Darshan", "the site names no libdarshan.so (darshan): there will be no logs")
    elif why := _unfit(made.site.darshan):
        yield Finding("note", "Darshan", f"{why}: runs do without where it is not")
    else:
        yield Finding("ok", "Darshan", f"{made.site.darshan} is there")


def _unfit(library: str) -> str | None:
    try:
        with open(library, "rb") as file:
            return None if file.read(4) == b"\x7fELF" else f"{library} is no library"
    except OSError as fault:
        return f"{library}: {fault.strerror} on {os.uname().nodename}"


def _launch(made: Plan, needed: tuple[str, ...], patience_s: float) -> Iterator[Finding]:
    """Start two ranks a node on one or two nodes with the site's launcher, in a job of their own; they import the
    packages needed. Where they do not meet on two nodes, the other ways between nodes are tried in turn.
    """
    try:
        yield from launched(made, needed, patience_s)
    except DlioError as fault:
        others = launchers.remotes(made.site) if made.nodes > 1 else ()
        way, _ = working_remote(made, others, needed, patience_s)
        if way is None:
            raise
        raise type(fault)(f"{fault}; with -S site.launcher.remote={way} they run") from fault


def working_remote(
    made: Plan, ways: Sequence[Remote | None], needed: tuple[str, ...], patience_s: float
) -> tuple[Remote | None, str]:
    """The first of the ways between nodes by which ranks on two nodes meet, None where none is seen to work; and what
    was tried.
    """
    for way in ways:
        tried = replace(made, site=replace(made.site, launcher=replace(made.site.launcher, remote=way)))
        try:
            findings = list(launched(tried, needed, patience_s))
        except DlioError:
            continue
        if any(finding.verdict == "ok" for finding in findings):
            return way, "tried with two nodes"
        return None, f"not tried: {findings[0].text}"  # the other ways would wait as long
    return None, "tried, none works"


def launched(made: Plan, needed: tuple[str, ...], patience_s: float) -> Iterator[Finding]:
    """Findings of a small job by the site's own way between nodes; raises where its ranks do not meet."""
    smallest = _smallest(made, needed)
    if smallest is None:
        yield Finding("note", "launch", f"not tried: queue {made.queue} takes no job of so few nodes")
        return
    started = time.monotonic()
    record = submit(smallest).job
    directory = Path(smallest.directory)
    try:
        last = _watched(directory, started + patience_s)
    except BaseException:  # nobody will look after this job
        cancel(directory)
        raise
    record = last.job
    if not record.ended:
        cancel(directory)
        if last.is_final and last.fault is not None:
            raise last.fault
        yield Finding("note", "launch", f"still {record.state} after {patience_s:.0f} s, cancelled: {directory}")
        return
    if record.state != "completed":
        raise _failure(smallest, record)
    took = time.monotonic() - started
    await_release(directory)
    probe = directory / rundir.DARSHAN / darshan.PROBE
    found = verdict.decode_probe(probe.read_bytes(), str(probe)) if probe.exists() else None
    folders.discard(directory)
    yield Finding("ok", "launch", f"{_who(smallest)} met through {made.site.launcher.kind}, {took:.0f} s in all")
    if needed:
        yield Finding("ok", "packages", f"ranks can import {', '.join(needed)}")
    if found is not None and found.why_not is None:
        text = f"{_RANKS_A_NODE} ranks left a log of {_RANKS_A_NODE}; version {found.version}"
        yield Finding("ok", "Darshan", text)
    elif found is not None:
        yield Finding("note", "Darshan", f"runs will do without: {found.why_not}")


def _who(smallest: Plan) -> str:
    return f"{smallest.ranks} ranks" + (f" on {smallest.nodes} nodes" if smallest.nodes > 1 else "")


def _watched(directory: Path, deadline: float) -> Watched:
    """The job when it has ended or cannot be watched any more, or as it was at the deadline."""
    for sighting in watch([directory]):
        last = sighting
        if time.monotonic() > deadline:
            break
    return last


def _failure(smallest: Plan, record: job.Job) -> DlioError:
    """In the ranks' own words, where they came so far, or the last ones that anybody said."""
    directory = Path(smallest.directory)
    for path in directory.glob(f"{rundir.RUNS}/*/{rundir.ERROR}"):
        error = results.decode_error(path.read_bytes(), str(path))
        kind = kind_of(error.exit_code)
        ran = f"{_who(smallest)} did not run ({record.state}): " if kind is InfrastructureError else ""
        return kind(f"{ran}{error.message}")
    return InfrastructureError(f"{_who(smallest)} did not run ({record.state}): {_last_words(directory)}")


def _last_words(directory: Path) -> str:
    errors = directory / rundir.STDERR
    said = errors.read_text(errors="replace").split("\n") if errors.exists() else []
    lines = [line for line in said if line.strip()]
    last = ([line for line in lines if not line.startswith("[mpiexec@")] or lines)[-1:]  # hydra's own trace says less
    return f"{' '.join(last)} (see {errors})" if last else f"see {directory}"


def _smallest(made: Plan, needed: tuple[str, ...]) -> Plan | None:
    """A plan for two ranks a node, on two nodes where the job has several, that import the packages and read nothing;
    None where the queue requires more nodes.
    """
    queue = made.site.queues.get(made.queue or "")
    nodes = min(made.nodes, 2)
    if queue is not None and queue.fewest_nodes > nodes:
        return None
    wanted = max(_LAUNCH_WALLTIME, (queue.shortest if queue else None) or 0)
    launcher = made.site.launcher
    bind = None if launcher.bind and launcher.bind.startswith("list:") else launcher.bind
    site = replace(made.site, depth=None, launcher=replace(launcher, bind=bind))
    draft = workload.draft("null", ("train.steps=1", "name=check"))
    smallest = packing.one(
        Asked(draft, site, nodes=(nodes,), ranks_per_node=(_RANKS_A_NODE,)),
        Request(
            runs=Path(made.directory).parent,
            data=Path(made.data),
            walltime=units.Walltime(wanted),
            account=made.account,
            queue=made.queue,
            job_options=made.job_options,
        ),
    )
    watched = any(run.darshan for run in made.runs)  # what reads nothing would do without
    return replace(smallest, packages=needed, runs=tuple(replace(run, darshan=watched) for run in smallest.runs))


def as_document(findings: list[Finding]) -> list[dict[str, object]]:
    """For --json."""
    return [dict(zip(("verdict", "what", "text"), finding, strict=False)) for finding in findings]
