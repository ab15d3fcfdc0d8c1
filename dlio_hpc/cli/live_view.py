"""Lines that show jobs while they run."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from dlio_hpc.base import text_bars
from dlio_hpc.base.counted_progress import duration
from dlio_hpc.base.safe_text import in_ascii, single_line
from dlio_hpc.batch import live_runs
from dlio_hpc.batch.job_watch import Watched
from dlio_hpc.batch.live_runs import LiveRun, RunRates

_BAR, _MARGIN = 24, 2


class LiveView:
    """Texts of jobs that are watched. is_ascii: whether only ASCII characters are printed."""

    def __init__(self, is_ascii: bool) -> None:
        self._is_ascii = is_ascii
        self._rates: dict[Path, RunRates] = {}

    def add(self, watched: Watched) -> None:
        """Record the rate of a job, as seen in this look."""
        if watched.live is not None:
            self._rates.setdefault(watched.directory, RunRates()).add(watched.live)

    def rate(self, watched: Watched) -> float | None:
        """Return the rate of a job during the last seconds, in bytes/s; None if it is unknown."""
        rates = self._rates.get(watched.directory)
        return rates.now if rates and watched.live is not None else None

    def screen(self, jobs: Sequence[Watched], width: int, height: int) -> list[str]:
        """Return the lines of jobs on a terminal of `width` columns and `height` rows. Jobs with a current run come
        first, and ended jobs last. If there are not enough rows, the last line says how many jobs are left out.
        """
        order = sorted(jobs, key=lambda watched: (watched.job.ended, watched.live is None))
        lines: list[str] = []
        for number, watched in enumerate(order):
            block = self._block(watched, width)
            if len(lines) + len(block) > height - 2:
                left = len(order) - number
                return [*lines, f"and {left} more job{'s' * (left > 1)}"]
            lines += block
        return lines

    def line(self, watched: Watched) -> str:
        """Return one line on the current run of a job."""
        run = watched.live
        if run is None:
            return f"{watched.job.job}: {_of_job_out(watched)}" if watched.progress else ""
        parts = [*_counts(run), *_rates(run, self.rate(watched)), *_shares(run), *_remarks(run)]
        return self._text(f"{watched.job.job}: {_place(run)}, {', '.join(parts)}")

    def _text(self, line: str) -> str:
        return in_ascii(single_line(line)) if self._is_ascii else single_line(line)

    def _block(self, watched: Watched, width: int) -> list[str]:
        """Return the lines on a job: its state, the progress of its run, the rates, and what the ranks do."""
        head, run = f"{watched.job.job}  {heading(watched)}", watched.live
        if watched.job.ended:
            lines = [head]
        elif run is None:
            lines = [head, *([_of_job_out(watched)] if watched.progress else [])]
        else:
            rates = ", ".join(_rates(run, self.rate(watched)))
            spark = self._spark(watched, width - len(rates) - _MARGIN - 1)
            lines = [f"{head}, {_place(run)}", f"{self._bar(run)} {', '.join(_counts(run))}"]
            lines += [f"{rates} {spark}", ", ".join(_shares(run)), *_remarks(run)]
        indented = [lines[0], *(f"{'':{_MARGIN}}{line}" for line in lines[1:] if line.strip())]
        texts = [self._text(line) for line in indented]
        return [text if len(text) <= width else f"{text[: width - 3]}..." for text in texts]

    def _bar(self, run: LiveRun) -> str:
        filled = int(_BAR * run.done / run.total) if run.total else 0
        return "█" * filled + "░" * (_BAR - filled)

    def _spark(self, watched: Watched, most: int) -> str:
        known = self._rates.get(watched.directory)
        rates = list(known.history)[-most:] if known and most > 0 else []
        high = max(rates, default=0.0)
        return text_bars.bars(rates, high, high) if high else ""


def heading(watched: Watched) -> str:
    """Return the state of a job and, if the state may be out of date, the reason."""
    texts = (watched.job.described(), watched.job.night_text(), watched.advice)
    fault = "the batch system does not answer" if watched.fault and not watched.is_final else ""
    return ", ".join(filter(None, (*texts, fault)))


def _of_job_out(watched: Watched) -> str:
    progress = watched.progress
    assert progress is not None
    rest = f", {progress.rest}" if progress.rest else ""
    where = live_runs.place(watched.directory, progress.run)
    return f"{where}, rank 0 has done {progress.done:,} of its {progress.total:,} {progress.unit}{rest}"


def _place(run: LiveRun) -> str:
    return live_runs.placed(run.number, run.runs, run.name)


_PHASES = {
    "start": "starting", "generate": "", "steps": "", "checkpoint": "writes a checkpoint",
    "evaluation": "evaluation", "restore": "reads a checkpoint",
}  # fmt: skip


def _counts(run: LiveRun) -> Iterator[str]:
    if run.total:
        yield f"{run.done:,} of {run.total:,} {run.unit}"
    elif run.epochs:
        yield f"{run.done:,} {run.unit} so far"
    if run.epochs > 1:
        yield f"epoch {run.epoch} of {run.epochs}"
    if _PHASES[run.phase]:
        yield _PHASES[run.phase]
    if run.left_s is not None and run.done < run.total:
        yield f"about {duration(run.left_s)} left"


def _rates(run: LiveRun, now: float | None) -> Iterator[str]:
    verb = "wrote" if run.phase == "generate" else "read"
    if run.mean_rate is not None:
        yield f"{verb} {run.mean_rate / 1e6:,.0f} MB/s so far"
        if now is not None:
            yield f"{now / 1e6:,.0f} MB/s now"


def _shares(run: LiveRun) -> Iterator[str]:
    parts: tuple[tuple[str, float | None], ...] = (("wait", run.wait), ("compute", run.compute), ("sync", run.sync))
    return (f"{name} {share:.0%}" for name, share in parts if share is not None)


def _remarks(run: LiveRun) -> Iterator[str]:
    if run.slowest is not None:
        rank = f"rank {run.slowest.rank} ({run.slowest.host})"
        if run.epochs:
            yield f"slowest: {rank}, others wait for it {run.slowest.share:.0%} of the time"
        else:
            yield f"slowest: {rank}, {run.slowest.share:.0%} of its files"
    if run.from_storage is not None:
        yield f"{min(run.from_storage, 1):.0%} of bytes came from storage so far"
