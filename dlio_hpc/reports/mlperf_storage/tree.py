"""The folder of a report in the layout of MLPerf Storage: the folders of runs, and files that are not overwritten."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base.errors import ConfigError, about
from dlio_hpc.files import rundir, safe_folders
from dlio_hpc.reports.mlperf_storage import figures, rules, run_files
from dlio_hpc.reports.mlperf_storage.editions import Division, Edition
from dlio_hpc.reports.mlperf_storage.rules import RuleFindings
from dlio_hpc.reports.mlperf_storage.selection import ReportedRun

_README = "README.md"
_TITLE = "# Results of dlio-hpc in the layout of MLPerf Storage"


class Placement(NamedTuple):
    """Names that determine the place of a report in the layout."""

    edition: Edition
    division: Division
    submitter: str
    system: str

    @property
    def folder(self) -> str:
        return f"{self.division}/{self.submitter}/results/{self.system}"


class WrittenReport(NamedTuple):
    """A report that was written. folders: name of each run, by the path of its folder relative to the root. missing:
    data that the files lack, and the reasons. cautions: reasons why runs do not measure the storage. rules: rules of
    the division that the runs do not meet, or that could not be checked.
    """

    headline: str
    rules: RuleFindings
    folders: dict[str, str]
    missing: tuple[str, ...]
    cautions: tuple[str, ...]


def write(root: Path, runs: Sequence[ReportedRun], placement: Placement, is_replaced: bool) -> WrittenReport:
    """Write the runs below `root`, a folder for each workload. is_replaced: whether to replace folders of workloads
    that an earlier report wrote. Raise ConfigError if a folder has files that must not be overwritten.
    """
    by_workload: dict[str, list[ReportedRun]] = {}
    for run in runs:
        by_workload.setdefault(f"{run.model.family}/{run.model.folder}", []).append(run)
    targets = {root / placement.folder / workload: group for workload, group in by_workload.items()}
    for target in targets:
        _check(target, is_replaced)
    _check_readme(root / _README)
    report = _report(runs, placement)
    for target, group in targets.items():
        _write_workload(target, group, placement.division, report.rules.unmet)
    rundir.write(root / _README, _readme(report, placement).encode())
    return report


def _report(runs: Sequence[ReportedRun], placement: Placement) -> WrittenReport:
    count = f"{len(runs)} run{'s' * (len(runs) != 1)}"
    findings = rules.judged(runs, placement.edition, placement.division)
    headline = (
        f"Wrote {count} in the layout of MLPerf Storage {placement.edition.version}. This is not a submission: "
        "dlio-hpc made the runs, and a submission needs runs of MLCommons' tool mlpstorage. "
        f"{findings.sentence(placement.edition, placement.division)}"
    )
    missing = dict.fromkeys(line for run in runs for line in run_files.missing(run))
    cautions = (
        f"{run.name}: {storage.text()}"
        for run in runs
        if (storage := run.run.storage) is not None and not run.is_generation and storage.outcome() != "storage"
    )
    folders = {f"{placement.folder}/{run.folder}": run.name for run in runs}
    without_datagen = {run.model.folder for run in runs if run.model.family == "training"} - {
        run.model.folder for run in runs if run.is_generation
    }
    datagen = (f"training/{name}/datagen: the jobs did not generate the dataset" for name in sorted(without_datagen))
    return WrittenReport(headline, findings, folders, (*missing, *datagen), tuple(cautions))


def _check(folder: Path, is_replaced: bool) -> None:
    """Raise ConfigError if a folder has content, unless it is to be replaced and dlio-hpc wrote it."""
    with about(folder):
        content = sorted(folder.iterdir()) if folder.exists() else []
    if content and not is_replaced:
        raise ConfigError(f"{folder} is not empty; give another DIR or --system, or replace it with --replace")
    for path in folder.glob("**/*") if content else ():
        if path.is_file() and not _is_own(path, folder):
            raise ConfigError(f"{path} was not written by dlio-hpc, so {folder} is not replaced; give another DIR")


def _is_own(path: Path, folder: Path) -> bool:
    """Return whether a file may be replaced: it is in the folder of a run that dlio-hpc wrote, and has the name of a
    file of the run; or it is a report of mlpstorage.
    """
    if path.name in ("results.json", "results.csv"):
        return True
    if not run_files.is_written(path.name):
        return False
    parents = [parent for parent in path.parents if parent.is_relative_to(folder)]
    return any(_is_marked(file) for parent in parents for file in parent.glob("*_metadata.json"))


def _is_marked(path: Path) -> bool:
    try:
        with about(path):
            content = json.loads(safe_folders.content(path, rundir.LARGEST_DOCUMENT))
    except ValueError:
        return False
    return isinstance(content, dict) and run_files.MARK in content


def _check_readme(path: Path) -> None:
    with about(path):
        is_foreign = path.exists() and not path.read_text(errors="replace").startswith(_TITLE)
    if is_foreign:
        raise ConfigError(f"{path} was not written by dlio-hpc; give another DIR")


def _write_workload(target: Path, runs: Sequence[ReportedRun], division: Division, unmet: Sequence[str]) -> None:
    """Write the runs of a workload to a new folder, then rename the folder. If this is interrupted, no folder looks
    complete that is not.
    """
    safe_folders.make(str(target.parent))
    new = target.with_name(rundir.temporary_name(target.name))
    old = target.with_name(rundir.temporary_name(target.name))
    try:
        with about(target, alias=new):
            for run in runs:
                folder = new / _below(run)
                for name, content in run_files.files(run, division, unmet).items():
                    safe_folders.make(str((folder / name).parent))
                    (folder / name).write_bytes(content)
            _exchange(new, target, old)
    finally:
        safe_folders.discard(new)
    safe_folders.discard(old)


def _exchange(new: Path, target: Path, old: Path) -> None:
    """Rename the folder `new` to `target`. If `target` exists, rename it to `old` first. If `new` cannot be renamed,
    rename `old` back to `target`.
    """
    if target.exists():
        target.rename(old)
    try:
        new.rename(target)
    except BaseException:
        if old.exists():
            old.rename(target)
        raise


def _below(run: ReportedRun) -> Path:
    """Return the path of a run's folder, relative to the folder of its workload."""
    return Path(run.folder).relative_to(f"{run.model.family}/{run.model.folder}")


def _readme(report: WrittenReport, placement: Placement) -> str:
    edition = placement.edition
    sections = {
        "Rules that are not met": report.rules.unmet,
        "Rules that could not be checked": report.rules.undecided,
        "Runs of the last call": [f"`{folder}`: {name}" for folder, name in report.folders.items()],
        "Left out or null": report.missing,
        "Storage was not read, or it is unknown whether it was read": report.cautions,
        "Definitions of figures": figures.DEFINITIONS,
    }
    lists = "".join(
        f"\n## {title}\n\n" + "".join(f"- {line}\n" for line in lines) for title, lines in sections.items() if lines
    )
    return (
        f"{_TITLE}\n\n{report.headline}\n\n"
        "A submission is made with MLCommons' own tool: https://github.com/mlcommons/storage. The tool runs the\n"
        "benchmark, checks the rules and writes the same folders. MLPerf is a trademark of MLCommons; a result that\n"
        "was not submitted and reviewed must not be called an MLPerf result.\n\n"
        f"The layout follows mlcommons/storage, revision {edition.revision} of {edition.date}.\n{lists}"
    )
