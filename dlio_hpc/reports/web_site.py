"""Static site of all jobs of a folder of archives: a dashboard, and a page for each job and each study.

Each page is written atomically, and the dashboard is written last. Even if the command is killed, there are no partial
pages and no links to missing pages. Nothing is removed.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.counted_progress import CountedProgress
from dlio_hpc.base.errors import ConfigError, InfrastructureError, InvalidRun, classified, of_system
from dlio_hpc.files import archive, atomic_file, rundir
from dlio_hpc.records import job_outcome, outcomes, study_outcome
from dlio_hpc.reports import dashboard, examined_runs, html_page, job_page, judged_study, study_report
from dlio_hpc.reports.dashboard import Address, Facility, Unread
from dlio_hpc.verdict import history, newest_jobs
from dlio_hpc.verdict.history_entry import Entry

INDEX, JOBS, STUDIES = "index.html", "jobs", "studies"
# Number of characters at the start of a page that contain its mark.
_HEAD = 2000


class SiteMade(NamedTuple):
    """Result of making a site. written: pages that were made or rebuilt. kept: number of pages that were up to date.
    unread: archives and studies without a page. exit_codes: exit codes of the reasons.
    """

    written: tuple[str, ...]
    kept: int
    unread: tuple[Unread, ...]
    exit_codes: tuple[int, ...]

    @property
    def exit_code(self) -> int:
        """Exit code of the most severe reason why a page was not made; 0 if all pages were made."""
        worst = outcomes.worst(map(outcomes.of_exit_code, self.exit_codes))
        return 0 if worst is None else outcomes.OUTCOMES[worst].exit_code


class _PageJob(NamedTuple):
    """A page to make. name: file name without its suffix. sources: files whose content the page shows. text: function
    that returns the HTML text of the page.
    """

    kind: str
    name: str
    sources: Sequence[Path]
    text: Callable[[], str]


def addresses(folder: Path) -> Address:
    """Return the function that returns the address of the page of a job or study, relative to `folder`."""

    def address(name: str) -> str:
        kinds = (STUDIES, JOBS) if "/" not in name else ()
        kind = next((kind for kind in kinds if (folder / kind / f"{name}.html").is_file()), None)
        return "" if kind is None else f"{kind}/{quote(name)}.html"

    return address


def make(folder: Path, archives: Path, is_anew: bool, report: Callable[[str], None]) -> SiteMade:
    """Make the pages that are missing or older than their archives, then the dashboard. folder: folder of the site.
    archives: folder of archives, whose history is up to date. is_anew: whether to make all pages. report: function that
    is called with lines of progress. Raise ConfigError if a page would replace a file that this command did not write.
    """
    entries = history.entries(archives)
    if not entries and next(archives.glob(f"*{rundir.ARCHIVE_SUFFIX}"), None) is None:
        raise ConfigError(f"no archives in {archives}; give the folder of archives with --archive")
    for directory in (folder, folder / JOBS, folder / STUDIES):
        _make_folder(directory)
    written, kept, unread, codes = [], 0, [], []
    broken: set[Path] = set()
    jobs = [*_jobs(archives), *_studies(archives, entries)]
    progress = CountedProgress(report, str(folder), "pages", len(jobs))
    for number, job in enumerate(jobs):
        progress(number)
        target = folder / job.kind / f"{job.name}.html"
        if not _is_ours(target):
            unread.append(Unread(job.name, f"{target} was not written by dlio-hpc site-report; move it away"))
            codes.append(ConfigError.exit_code)
            continue
        if not is_anew and _is_current(target, job.sources):
            kept += 1
            continue
        if not broken.isdisjoint(job.sources):
            continue  # a study with an archive that is listed already
        try:
            text = job.text()
        except Exception as fault:  # noqa: BLE001 - an archive that cannot be read must not prevent the other pages
            reason = classified(fault)
            unread.append(Unread(job.name, str(reason)))
            codes.append(reason.exit_code)
            broken.update(job.sources)
            continue
        _write(target, text)
        written.append(f"{job.kind}/{job.name}.html")
    _write(folder / INDEX, _index(folder, archives, entries, unread))
    return SiteMade(tuple(written), kept, tuple(unread), tuple(codes))


def _make_folder(folder: Path) -> None:
    if folder.is_file():
        raise ConfigError(f"{folder} is a file; give a folder, which may be new")
    try:
        if not folder.is_dir():
            folder.mkdir(parents=True)
            folder.chmod(folder.stat().st_mode & 0o7777 | 0o050)
    except OSError as fault:
        raise InfrastructureError(f"cannot create {of_system(fault, folder)}") from fault


def _is_current(target: Path, sources: Sequence[Path]) -> bool:
    """Return whether a page is newer than its sources."""
    try:
        return target.stat().st_mtime_ns > max(os.stat(source).st_mtime_ns for source in sources)
    except FileNotFoundError:
        return False


def _is_ours(target: Path) -> bool:
    """Return whether a page was written by this command, or does not exist."""
    try:
        with target.open(encoding="utf-8", errors="replace") as file:
            return html_page.SITE_MARK in file.read(_HEAD)
    except FileNotFoundError:
        return True
    except OSError as fault:
        raise InfrastructureError(f"cannot read {of_system(fault, target)}") from fault


def _write(target: Path, text: str) -> None:
    """Write a page so that the group can read it."""
    if not _is_ours(target):
        raise ConfigError(f"{target} was not written by dlio-hpc site-report; move it, or choose another folder")
    atomic_file.write(target, text, permissions=0o040)


def _jobs(archives: Path) -> Iterator[_PageJob]:
    for path in rundir.matching(archives, f"[!.]*{archive.SUFFIX}"):
        name = path.name.removesuffix(archive.SUFFIX)
        yield _PageJob(JOBS, name, [path], lambda path=path, name=name: _job_text(path, name))  # type: ignore[misc]


def _job_text(path: Path, name: str) -> str:
    outcome = job_outcome.load_archive(path)
    if outcome.job.job != name:
        raise InvalidRun(f"{path} contains the job {outcome.job.job!r}; rename the archive to match its job")
    examined = examined_runs.examine(path, outcome, None, True)
    return html_page.render(job_page.of_jobs([outcome], [examined]), f"../{INDEX}")


def _studies(archives: Path, entries: Sequence[Entry]) -> Iterator[_PageJob]:
    """Yield the pages of the studies and suites that have archives. A page is also rebuilt after a decision on a
    baseline, because the verdict of a suite depends on the baseline.
    """
    decisions = list(rundir.matching(archives, f"{rundir.BASELINES}/[!.]*.json"))
    members: dict[str, list[Path]] = {}
    for entry in entries:
        path = archives / (entry.job + archive.SUFFIX)
        if entry.study != entry.job and "/" not in entry.study and path.exists():
            members.setdefault(entry.study, []).append(path)
    for study, paths in members.items():
        make_text = lambda paths=paths: _study_text(archives, paths)  # noqa: E731
        yield _PageJob(STUDIES, study, [*paths, *decisions], make_text)


def _study_text(archives: Path, paths: Sequence[Path]) -> str:
    jobs = [job_outcome.load_archive(path) for path in paths]
    study = study_outcome.held(jobs)
    if study is None:
        raise InvalidRun(f"{paths[0]} and the other jobs of its study do not record the same study")
    study = structs.replace(study, archive=str(archives))
    made = study_report.make(study_outcome.of_jobs(study, jobs, absent="its job is not archived"))
    verdict = judged_study.verdict_on(made, lambda _: None)
    return html_page.render(judged_study.page(made, verdict), f"../{INDEX}")


def _index(folder: Path, archives: Path, entries: Sequence[Entry], unread: Sequence[Unread]) -> str:
    rows = newest_jobs.of(archives, entries, entries)
    facility = Facility(str(archives), units.utc_now(), rows, len(entries), addresses(folder), entries, unread)
    return html_page.render(dashboard.of_facility(facility), "")
