"""Checks that run on the login node before submission, so that faults are found before the job waits in the queue. Each
check yields findings. A finding is printed on one line.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec.structs import replace

from dlio_hpc.base import units
from dlio_hpc.base.command import CommandMissing, Unanswered, ask
from dlio_hpc.base.errors import ConfigError, DlioError, InfrastructureError, about, kind_of
from dlio_hpc.base.units import counted
from dlio_hpc.batch import container, job_output, job_record, jobscript, launchers, setup_failures
from dlio_hpc.batch.cancel import cancel
from dlio_hpc.batch.job_state import await_release
from dlio_hpc.batch.job_watch import Watched, watch
from dlio_hpc.batch.schedulers.common import user
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.batch.submit import (
    CORRECT_PYTHON,
    check_commands,
    check_datasets,
    missing_python,
    submit,
    unwritable_folders,
)
from dlio_hpc.config import lustre_layout, workload
from dlio_hpc.config.container import Container, parse_bind
from dlio_hpc.config.lustre_layout import Directories, Layout
from dlio_hpc.config.site import Remote, Site
from dlio_hpc.darshan import setup as darshan
from dlio_hpc.darshan import verdict_file
from dlio_hpc.dataset import dataset_space
from dlio_hpc.dataset.dataset_folder import StoredDataset
from dlio_hpc.files import elf_library, filesystem, quotas, rundir, safe_folders
from dlio_hpc.files.quotas import Quota
from dlio_hpc.lustre import lfs
from dlio_hpc.plan import cost, packages, packing, plan, site_limits
from dlio_hpc.plan.mix import Load
from dlio_hpc.plan.plan import Plan
from dlio_hpc.plan.study import JobRequest, PartRequest
from dlio_hpc.results import run_result

_LAUNCH_WALLTIME, _RANKS_A_NODE = units.Walltime(120), 2


class PreflightFinding(NamedTuple):
    """Result of a check. verdict: "fault" if the job would fail or its results would be useless, "note" for other facts
    that the user should know, "ok" otherwise. what: subject of the check. exit_code: exit code of dlio-hpc for a fault,
    otherwise 0. untried: what this check could not try; empty if it tried everything.
    """

    verdict: Literal["ok", "note", "fault"]
    what: str
    text: str
    exit_code: int = 0
    untried: str = ""


# Kinds of file systems whose quotas quota(1) knows. Others have quotas of their own.
_WITH_QUOTA = {"ext4", "xfs", "nfs"}


class _Needs(NamedTuple):
    """What a job stores in a folder: bytes, and files and directories."""

    size: float
    files: int


def look(plans: Sequence[Plan], patience_s: float | None) -> Iterator[PreflightFinding]:
    """Run all checks for a study, and yield each finding as soon as it is known. The last finding lists the checks that
    were not possible. patience_s: seconds to wait for a small job that launches ranks; None to launch no ranks.
    """
    untried: list[str] = []
    for finding in _look(plans, patience_s):
        untried += [finding.untried] if finding.untried else []
        yield finding
    if untried:
        yield PreflightFinding("note", "not tried", "; ".join(dict.fromkeys(untried)))


def _look(plans: Sequence[Plan], patience_s: float | None) -> Iterator[PreflightFinding]:
    made = plans[0]
    needed = plan.datasets(run for job_plan in plans for run in job_plan.runs if run.kind == "generate")
    yield from _limits(plans)
    yield from _mixes(plans)
    yield from _guarded("submission", lambda: _submission(plans))
    yield from _guarded("folders", lambda: _folders(plans))
    yield from _guarded("space for outputs", lambda: _output_space(plans))
    yield from _guarded("datasets", lambda: _datasets(plans))
    for folder in made.folders:
        stored = [run.stored for run in needed if run.data == folder]
        ranks = max(job_plan.ranks for job_plan in plans)
        yield from _storage(made.site, folder, stored, ranks, _needs(plans, stored, ranks, folder))
    yield from _guarded("batch system", lambda: _batch_system(made))
    if made.site.container is None:
        yield from _guarded("python", lambda: _interpreter(made))
    yield from _guarded("preload", lambda: _preload(made))
    if made.site.container is not None:
        yield from _guarded("container", lambda: _container(made))
    if patience_s is None:
        yield PreflightFinding("note", "launch", "not tried", untried="launch of ranks (--no-launch)")
    else:
        yield from _guarded("launch", lambda: _launch(made, packages.measured(plans), patience_s))


def _mixes(plans: Sequence[Plan]) -> Iterator[PreflightFinding]:
    """Yield a finding for each mix: how its ranks start, and which load has which ranks."""
    runs = [run for job_plan in plans for run in job_plan.runs if run.load is not None]
    mixes: dict[str, dict[str, Load]] = {}
    for load in (run.load for run in runs if run.load is not None):
        mixes.setdefault(load.mix, {})[load.name] = load
    for name, loads in mixes.items():
        in_order = sorted(loads.values(), key=lambda load: (load.first_node, load.first_rank))
        one, places = in_order[0], "; ".join(f"{load.name}: {load.place}" for load in in_order)
        ranks = counted(one.job_nodes * one.job_ranks_per_node, "rank")
        yield PreflightFinding(
            "ok", "mix", f"{name}: the launcher starts {ranks} once, and MPI_Comm_split divides them: {places}"
        )


def _storage(
    site: Site, folder: str, needed: Sequence[StoredDataset], ranks: int, needs: _Needs
) -> Iterator[PreflightFinding]:
    """Check the file system under test, which is the file system that holds `folder`: its kind, layout, storage
    targets, space and quotas. needed: datasets that must fit on the file system. ranks: most ranks of a job that
    generates them. needs: what must fit into the quotas.
    """
    asked = site.layout
    checks: tuple[tuple[str, Callable[[], Iterator[PreflightFinding]]], ...] = (
        ("file system", lambda: _file_system(folder, site.file_system)),
        ("layout", lambda: _layout(asked, folder)),
        ("targets", lambda: _targets(asked, folder)),
        ("space", lambda: _space(folder, needed, ranks)),
        ("quota", lambda: _quota(folder, needs)),
    )
    for title, check in checks:
        yield from _guarded(title, check)


def _guarded(title: str, check: Callable[[], Iterator[PreflightFinding]]) -> Iterator[PreflightFinding]:
    try:
        yield from check()
    except DlioError as fault:
        yield PreflightFinding("fault", title, str(fault), fault.exit_code)
    except OSError as fault:
        yield PreflightFinding("fault", title, str(fault), DlioError.exit_code)


def _limits(plans: Sequence[Plan]) -> Iterator[PreflightFinding]:
    """Check the plans against the limits in the site profile: nodes, walltime, account, ranks per node, and
    total cost.
    """
    made = plans[0]
    faults = {str(fault): fault for job_plan in plans for fault in site_limits.faults(job_plan)}
    faults |= {str(fault): fault for fault in site_limits.of_cost(made.site, cost.of_jobs(plans))}
    for text, fault in faults.items():
        yield PreflightFinding("fault", "limits", text, fault.exit_code)
    for note in dict.fromkeys(note for job_plan in plans for note in job_plan.notes):
        yield PreflightFinding("note", "limits", note)
    if not faults:
        yield PreflightFinding(
            "ok",
            "limits",
            f"{counted(made.nodes, 'node')} for {units.format_walltime(made.walltime)}: within the profile's limits",
        )


def _file_system(folder: str, expected: str | None) -> Iterator[PreflightFinding]:
    if (why := filesystem.unexpected(Path(folder), expected)) is not None:
        yield PreflightFinding("fault", "file system", why, InfrastructureError.exit_code)
        return
    file_system = filesystem.of(Path(folder))
    where = f"{folder}: {file_system.kind}" + (
        f", mounted at {file_system.mount} from {file_system.source}" if file_system.mount else ""
    )
    if file_system.kind == "tmpfs":
        yield PreflightFinding("note", "file system", f"{where}; this is memory, not storage")
    else:
        yield PreflightFinding("ok", "file system", where)


def _folders(plans: Sequence[Plan]) -> Iterator[PreflightFinding]:
    """Check that files can be created in each folder that jobs write to."""
    faults = unwritable_folders(plans)
    for fault in faults:
        yield PreflightFinding("fault", "folders", fault, InfrastructureError.exit_code)
    for folder in plans[0].folders if not faults else ():
        if not os.path.exists(folder):
            place = filesystem.existing(Path(folder))
            yield PreflightFinding("note", "folders", f"{folder} does not exist; a job would create it in {place}")
    if not faults:
        has_data = any(run.writes() for job_plan in plans for run in job_plan.runs)
        names = "data, runs and archives" if has_data else "runs and archives"
        yield PreflightFinding("ok", "folders", f"the folders for {names} are writable")


def _layout(asked: Layout | None, folder: str) -> Iterator[PreflightFinding]:
    file_system = filesystem.of(Path(folder))
    if not file_system.is_lustre:
        outcome = "the site's layout will not be set" if asked else "nothing to set"
        yield PreflightFinding("note" if asked else "ok", "layout", f"{file_system.kind} is not Lustre: {outcome}")
        return
    try:
        client = lfs.version()
    except CommandMissing as fault:
        yield PreflightFinding(
            "fault" if asked else "note", "layout", str(fault), InfrastructureError.exit_code if asked else 0
        )
        return
    number = ".".join(map(str, client))
    if asked is None:
        yield PreflightFinding("ok", "layout", f"default layout of the file system; Lustre client {number}")
        return
    lfs.check_version(asked, client)
    yield PreflightFinding("ok", "layout", f"{lustre_layout.describe(asked)}; Lustre client {number}")


def _targets(asked: Layout | None, folder: str) -> Iterator[PreflightFinding]:
    file_system = filesystem.of(Path(folder))
    if not file_system.is_lustre:
        return
    targets = lfs.targets(filesystem.existing(Path(folder)))
    flagged = [f"{target.number} ({target.flags})" for target in targets if target.flags]
    if flagged:
        summary = f"{len(flagged)} of {len(targets)} targets are flagged: {', '.join(flagged)}"
        yield PreflightFinding(
            "note",
            "targets",
            f"{summary} (D degraded, R read-only, N no new files, S no space, I no inodes, down: no answer)",
        )
    else:
        yield PreflightFinding("ok", "targets", f"{len(targets)} targets, none degraded, full or read-only")
    if asked is None:
        return
    for pool in filter(None, lustre_layout.pools(asked)):
        yield PreflightFinding("ok", "pool", f"{pool} has {lfs.pool_size(file_system.fsname, pool)} targets")
    if asked.directories is not None:
        yield from _mdts(asked.directories, folder)
    most = max((part.stripe_count or 0 for part in (asked.components or (asked,))), default=0)
    if most > len(targets) and not asked.overstripe:
        raise ConfigError(
            f"layout: {most} stripes are requested, but the file system has {len(targets)} targets; lower stripe_count"
        )


def _mdts(asked: Directories, folder: str) -> Iterator[PreflightFinding]:
    """Check that the file system has the metadata targets that the layout of directories names. Lustre itself takes
    fewer targets, without an error.
    """
    targets = lfs.targets(filesystem.existing(Path(folder)), "MDT")
    have = f"the file system has {counted(len(targets), 'MDT')}"
    if asked.count > len(targets):
        raise ConfigError(
            f"layout: directories {lustre_layout.mdts(asked.count)} are requested, but {have}; lower directories.count"
        )
    if asked.index is not None and asked.index not in {target.number for target in targets}:
        raise ConfigError(f"layout: directories.index is {asked.index}, but {have}, and none has this number")
    yield PreflightFinding("note", "MDTs", f"{have}. {lfs.PERMISSION}")


def _datasets(plans: Sequence[Plan]) -> Iterator[PreflightFinding]:
    """Check that each dataset that no job generates exists."""
    check_datasets(plans)
    if not any(run.kind == "generate" for job_plan in plans for run in job_plan.runs):
        yield PreflightFinding("ok", "datasets", "they exist as far as their folders exist here")


def _space(folder: str, needed: Sequence[StoredDataset], ranks: int) -> Iterator[PreflightFinding]:
    text = dataset_space.check_space(needed, filesystem.existing(Path(folder)), ranks)
    yield PreflightFinding("ok", "space", text)


def _output_space(plans: Sequence[Plan]) -> Iterator[PreflightFinding]:
    """Check that the checkpoints of models, and the files of metadata workloads, fit on their file system. Other
    checkpoints are small.
    """
    texts = {text for made in plans for run in made.runs if (text := cost.require_space(run, made.ranks))}
    yield from (PreflightFinding("ok", "space for outputs", text) for text in sorted(texts))


def _needs(plans: Sequence[Plan], needed: Sequence[StoredDataset], ranks: int, folder: str) -> _Needs:
    """Return what the datasets and the metadata workloads of a study store in a folder."""
    datasets = dataset_space.needs_of_all(needed, ranks=ranks)
    metadata = [
        cost.metadata_needs(run.workload.metadata, run.workload.train.epochs, made.ranks)
        for made in plans
        for run in made.runs
        if run.workload.metadata is not None and Path(run.outputs).parent == Path(folder)
    ]
    most = max(metadata, default=(0, 0))  # a run removes its files before the next run
    return _Needs(datasets.size + most[0], datasets.files + most[1])


def _quota(folder: str, needs: _Needs) -> Iterator[PreflightFinding]:
    """Check the quotas of the user, of the folder's group and, on Lustre, of the folder's project."""
    file_system, path = filesystem.of(Path(folder)), filesystem.existing(Path(folder))
    kind = file_system.kind
    if file_system.is_lustre:
        owners = [("-u", "user", user()), ("-g", "group", _group(path)), ("-p", "project", lfs.project(path))]
        for option, whose, name in owners:
            if name is not None:
                yield _lustre_quota(needs, option, f"{whose} {name}", name, path)
    elif kind not in _WITH_QUOTA:
        yield PreflightFinding("note", "quota", f"not checked on {kind}", untried=f"quota on {kind}")
    else:
        yield from _posix_quotas(needs, file_system.mount, path, kind)


def _posix_quotas(needs: _Needs, mount: str, path: Path, kind: str) -> Iterator[PreflightFinding]:
    """Check the quotas of the user and of the group of a path on a file system that has no quotas of its own."""
    try:
        kept = quotas.of_process(mount)
    except Unanswered as fault:
        yield PreflightFinding("note", "quota", f"not checked on {kind}: {fault}", untried=f"quota on {kind}")
        return
    owners = {("u", os.getuid()): f"user {user()}", ("g", path.stat().st_gid): f"group {_group(path)}"}
    for owner, name in owners.items():
        yield _within(kept.get(owner), name, needs)


def _group(path: Path) -> str:
    """Return the name of the group of `path`, or its number if it has no name. lfs-quota(1) accepts both."""
    try:
        return path.group()
    except KeyError:
        return str(path.stat().st_gid)


def _lustre_quota(needs: _Needs, option: str, owner: str, name: str, path: Path) -> PreflightFinding:
    try:
        return _within(lfs.quota(option, name, path), owner, needs)
    except Unanswered as fault:
        return PreflightFinding("note", "quota", f"{owner}: unknown, {fault}", untried=f"quota of {owner}")


def _within(kept: Quota | None, owner: str, needs: _Needs) -> PreflightFinding:
    """Compare what is needed with a quota. kept: None if the owner has none."""
    if kept is None:
        return PreflightFinding("ok", "quota", f"{owner}: no quota")
    for need, used, most, unit in (
        (needs.size, kept.used_bytes, kept.most_bytes, "bytes"),
        (needs.files, kept.used_files, kept.most_files, "files"),
    ):
        if most and used + need > most:
            text = f"{owner}: {used} of {most} {unit} are used; the job needs {need:.0f} more"
            return PreflightFinding("fault", "quota", text, ConfigError.exit_code)
    limit = units.format_size(kept.most_bytes) if kept.most_bytes else "no limit"
    return PreflightFinding("ok", "quota", f"{owner}: {units.format_size(kept.used_bytes)} used, {limit}")


def _batch_system(made: Plan) -> Iterator[PreflightFinding]:
    """Ask the batch system whether it would accept the queue, account and limits of the job. If the batch system checks
    some of these only at submission, the finding says so.
    """
    script = jobscript.render(made)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, rundir.SCRIPT)
        with about(path):
            path.write_text(script)
        path.chmod(0o755)
        scheduler = SCHEDULERS[made.site.scheduler]
        answer = scheduler.probe(made, path)
    yield PreflightFinding("ok", "batch system", answer, untried=scheduler.unprobed)


def _submission(plans: Sequence[Plan]) -> Iterator[PreflightFinding]:
    check_commands(plans)
    yield PreflightFinding("ok", "submission", f"{counted(len(plans), 'more job')} can be submitted from here")


def _interpreter(made: Plan) -> Iterator[PreflightFinding]:
    """Check that the interpreter of the ranks exists on this computer. Compute nodes of a batch system may have it
    where it does not exist here.
    """
    text = missing_python(made.site)
    if text is None:
        return
    if not SCHEDULERS[made.site.scheduler].is_queue:
        raise InfrastructureError(f"{text}; {CORRECT_PYTHON}")
    yield PreflightFinding("note", "python", f"{text}; ranks start only where it exists")


def _preload(made: Plan) -> Iterator[PreflightFinding]:
    """Check that the libraries that the ranks preload exist. The check is made on this node; it assumes that the
    compute nodes have the same software.
    """
    for library in made.site.preload:
        if why := elf_library.fault(library):
            raise InfrastructureError(f"preload: {why}")
        yield PreflightFinding("ok", "preload", f"{library} exists" if "/" in library else f"{library} is not searched")
    if made.site.darshan is None:
        yield PreflightFinding(
            "note", "Darshan", "the site profile sets no libdarshan.so (darshan): runs have no Darshan logs"
        )
    elif why := elf_library.fault(made.site.darshan):
        yield PreflightFinding("note", "Darshan", f"{why}: runs have no Darshan log on nodes without this library")
    else:
        yield PreflightFinding("ok", "Darshan", f"{made.site.darshan} exists")


def _container(made: Plan) -> Iterator[PreflightFinding]:
    """Check that the container engine and the image exist, and that the ranks' packages can be imported in the image. A
    login node may lack the engine, and may start no containers: that is a note.
    """
    image = made.site.container
    assert image is not None
    is_local = made.site.scheduler == "local"
    if shutil.which(image.engine) is None:
        if is_local:
            container.require_engine(made.site)
        origin = "lines of `setup` must put it on PATH" if made.site.setup else "it must be on PATH"
        text = f"{image.engine} is not on PATH on {os.uname().nodename}; {origin} on the compute nodes"
        yield PreflightFinding("note", "container", text)
        if image.engine == "podman-hpc":
            return
    elif image.engine == "podman-hpc" and not ask(image.engine, "images", "--quiet", image.image).lines:
        raise InfrastructureError(
            f"Podman-HPC has no image {image.image} here; `podman-hpc images` lists images, and `podman-hpc pull` or "
            "`build` and `migrate` make one"
        )
    if image.engine != "podman-hpc":
        _require_readable(Path(image.image))
    yield PreflightFinding("ok", "container", f"image {image.image} exists")
    missing = [bind.source for bind in map(parse_bind, image.binds) if not os.path.exists(bind.source)]
    if missing:
        text = f"container.binds: not on {os.uname().nodename}: {', '.join(missing)}; ranks start only where all exist"
        yield PreflightFinding("note", "container", text)
    if shutil.which(image.engine) is not None:
        yield _imports(made, image, is_local)


def _require_readable(path: Path) -> None:
    with about(path):
        if path.is_dir():
            next(path.iterdir(), None)
        else:
            path.open("rb").close()


def _imports(made: Plan, image: Container, is_local: bool) -> PreflightFinding:
    answer = ask(*container.check(made), cwd="/")
    if answer.code == container.UNUSABLE and answer.err.startswith("dlio-hpc: "):
        raise ConfigError(answer.text.removeprefix("dlio-hpc: "))
    if answer.code:
        text = f"{image.engine} did not start {image.image} on {os.uname().nodename}: {answer.text}"
        if is_local:
            raise InfrastructureError(text)
        return PreflightFinding("note", "container", f"{text}; compute nodes may differ")
    return PreflightFinding("ok", "container", f"the image starts here and has dlio-hpc {made.version} and mpi4py")


def _launch(made: Plan, needed: tuple[str, ...], patience_s: float) -> Iterator[PreflightFinding]:
    """Start two ranks per node on one or two nodes, with the site's launcher, in a small job. The ranks import the
    packages in `needed`. If the ranks cannot communicate across two nodes, try the other remote start methods. If one
    of them works, name it in the error message.
    """
    try:
        yield from launched(made, needed, patience_s)
    except DlioError as fault:
        ways = launchers.remotes(made.site) if made.nodes > 1 else ()
        way, _ = working_remote(made, ways, needed, patience_s)
        if way is None:
            raise
        raise type(fault)(f"{fault}; the launch works with -S site.launcher.remote={way}") from fault


def working_remote(
    made: Plan, ways: Sequence[Remote | None], needed: tuple[str, ...], patience_s: float
) -> tuple[Remote | None, str]:
    """Try remote start methods in order. Return two values. The first is the first method with which ranks on two nodes
    can communicate; None if none works, or if a trial job could not run. The second is a message that says what was
    tried.
    """
    for way in ways:
        tried = replace(made, site=replace(made.site, launcher=replace(made.site.launcher, remote=way)))
        try:
            findings = list(launched(tried, needed, patience_s))
        except DlioError:
            continue
        if any(finding.verdict == "ok" for finding in findings):
            return way, "tried with two nodes"
        return None, f"not tried: {findings[0].text}"  # the other methods would wait just as long
    return None, "tried, none works"


def launched(made: Plan, needed: tuple[str, ...], patience_s: float) -> Iterator[PreflightFinding]:
    """Run a small job with the remote start method of the site profile, and yield the findings. Raise DlioError if the
    ranks do not run or cannot communicate. If the job has not ended after `patience_s` seconds, cancel it and yield a
    note.
    """
    smallest = _smallest(made, needed)
    if smallest is None:
        yield PreflightFinding(
            "note", "launch", f"not tried: queue {made.queue} accepts no job on {counted(min(made.nodes, 2), 'node')}",
            untried="launch of ranks",
        )  # fmt: skip
        return
    started = time.monotonic()
    record = submit(smallest).job
    directory = Path(smallest.directory)
    try:
        last = _watched(directory, started + patience_s)
    except BaseException:  # do not leave the job behind
        cancel(directory)
        raise
    record = last.job
    if not record.ended:
        cancel(directory)
        if last.is_final and last.fault is not None:
            raise last.fault
        text = f"the job was still {record.state} after {patience_s:.0f} s and was cancelled: {directory}"
        yield PreflightFinding("note", "launch", text, untried="launch of ranks, because the job did not start in time")
        return
    if record.state != "completed":
        raise _failure(smallest, record)
    took = time.monotonic() - started
    await_release(directory)
    failures = setup_failures.of_job(directory)
    probe = directory / rundir.DARSHAN / darshan.PROBE
    probe_verdict = verdict_file.decode_probe(probe.read_bytes(), str(probe)) if probe.exists() else None
    safe_folders.discard(directory)
    yield from (PreflightFinding("note", "setup", failure.text()) for failure in failures)
    if made.site.setup and not failures:
        yield PreflightFinding("ok", "setup", f"{counted(len(made.site.setup), 'line')} of site.setup succeeded")
    yield PreflightFinding(
        "ok",
        "launch",
        f"{_who(smallest)}, started by {made.site.launcher.kind}, communicated with each other; "
        f"the job took {took:.0f} s",
        untried=f"launch on more than {smallest.nodes} nodes" if made.nodes > smallest.nodes else "",
    )
    if needed:
        yield PreflightFinding("ok", "packages", f"ranks can import {', '.join(needed)}")
    if probe_verdict is not None and probe_verdict.why_not is None:
        text = f"{_RANKS_A_NODE} ranks wrote a log that covers {_RANKS_A_NODE} ranks; Darshan {probe_verdict.version}"
        yield PreflightFinding("ok", "Darshan", text)
    elif probe_verdict is not None:
        yield PreflightFinding("note", "Darshan", f"runs will have no Darshan log: {probe_verdict.why_not}")


def _who(smallest: Plan) -> str:
    return f"{smallest.ranks} ranks" + (f" on {smallest.nodes} nodes" if smallest.nodes > 1 else "")


def _watched(directory: Path, deadline: float) -> Watched:
    """Watch the job until it has ended, until it can no longer be watched, or until `deadline`. Return its last known
    state.
    """
    for sighting in watch([directory]):
        last = sighting
        if time.monotonic() > deadline:
            break
    return last


def _failure(smallest: Plan, record: job_record.Job) -> DlioError:
    """Return the error that the ranks of the small job reported. If they reported none, return an error with the last
    line of job.err.
    """
    directory = Path(smallest.directory)
    for path in directory.glob(f"{rundir.RUNS}/*/{rundir.ERROR}"):
        error = run_result.decode_error(path.read_bytes(), str(path))
        kind = kind_of(error.exit_code)
        ran = f"{_who(smallest)} did not run ({record.state}): " if kind is InfrastructureError else ""
        return kind(f"{ran}{error.message}")
    return InfrastructureError(f"{_who(smallest)} did not run ({record.state}): {_last_line(directory)}")


def _last_line(directory: Path) -> str:
    errors = directory / rundir.STDERR
    printed = errors.read_text(errors="replace").split("\n") if errors.exists() else []
    last = job_output.telling_line([line for line in printed if line.strip()])
    return f"{last} (see {errors})" if last else f"see {directory}"


def _smallest(made: Plan, needed: tuple[str, ...]) -> Plan | None:
    """Return the plan of a small job with two ranks per node, on at most two nodes. Its ranks import the packages in
    `needed`, and read nothing. Return None if the queue requires more nodes.
    """
    queue = made.site.queues.get(made.queue or "")
    nodes = min(made.nodes, 2)
    if queue is not None and queue.fewest_nodes > nodes:
        return None
    wanted = max(_LAUNCH_WALLTIME, (queue.min_walltime if queue else None) or 0)
    launcher = made.site.launcher
    bind = None if launcher.bind and launcher.bind.startswith("list:") else launcher.bind
    site = replace(made.site, depth=None, launcher=replace(launcher, bind=bind))
    draft = workload.draft("null", ("train.steps=1", "name=check"))
    smallest = packing.single_job(
        PartRequest(draft, site, nodes=(nodes,), ranks_per_node=(_RANKS_A_NODE,)),
        JobRequest(
            runs=Path(made.directory).parent,
            data=Path(made.data),
            walltime=units.Walltime(wanted),
            account=made.account,
            queue=made.queue,
            job_options=made.job_options,
        ),
    )
    # packing disables Darshan for a run that reads nothing
    watched = any(run.darshan for run in made.runs)
    return replace(smallest, packages=needed, runs=tuple(replace(run, darshan=watched) for run in smallest.runs))
