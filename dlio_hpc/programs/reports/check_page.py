"""Report of characterize --check: the verdict, the values that were not derived, and the similarity to the log."""

from typing import Any, NamedTuple

from dlio_hpc.base.units import format_size
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.emulation_check import CheckVerdict
from dlio_hpc.programs.reports import similarity_page, similarity_rows, workload_yaml
from dlio_hpc.programs.similarity.io_profile import MEASURED, Profile
from dlio_hpc.programs.similarity.similarity import SEEN, Factor, Similarity, Yardsticks
from dlio_hpc.reports.banner import Banner, state_of
from dlio_hpc.reports.page import Lines, Page, Section

_NAMES = {
    "request_min": "smallest request",
    "request_max": "largest request",
    "request_mean": "mean request size",
    "request_median": "median request size",
    "sequential": "share of sequential requests",
    "consecutive": "share of consecutive requests",
    "bytes_per_sample": "bytes per sample",
}


class NotDerived(NamedTuple):
    """Parts of the program's I/O that the workload does not take from the log. keys: values of the keys that the log
    does not show; these are defaults. left_out: lines on files that are left out. untraced_bytes: bytes that the log
    counts but does not trace. notes: limitations of the log.
    """

    keys: dict[str, Any]
    left_out: list[str]
    untraced_bytes: int
    notes: list[str]


class Checked(NamedTuple):
    """A check run, compared with the log. log, run: profiles. known: scores of published pairs of programs."""

    verdict: CheckVerdict
    absent: NotDerived
    log: Profile
    run: Profile
    compared: Similarity
    known: Yardsticks


def not_derived(character: Character, untraced_bytes: int) -> NotDerived:
    """Return what is not derived from the log. untraced_bytes: bytes that the log counts but does not trace."""
    keys = {key: made.value for key, made in character.derived.keys.items() if made.confidence == "unknown"}
    return NotDerived(keys, workload_yaml.left_out(character.derived.roles), untraced_bytes, character.notes)


def banner_of(verdict: CheckVerdict, run: Profile) -> Banner:
    """Return the banner: the score, the tolerance, and the factors that differ, each with its values for the log and
    for the run. run: profile of the check run.
    """
    return Banner(state_of(verdict.exit_code), f"{_sentence(verdict)}{_compared(verdict, run)}.")


def _sentence(verdict: CheckVerdict) -> str:
    if verdict.similarity is None:
        return "nothing can be compared: no factor of the pattern is known for both the log and the check run"
    score, limit = _score(verdict.similarity, verdict.tolerance), f"{verdict.tolerance:g}"
    factors = ", ".join(map(_factor, verdict.differing))
    differing = f"{factors} {'differs' if len(verdict.differing) == 1 else 'differ'}"
    if verdict.outcome == "fail":
        return f"pattern similarity {score} is below {limit}: {differing}"
    if verdict.outcome == "incomplete":
        return f"too few factors are compared for a verdict: pattern similarity {score}"
    return f"pattern similarity {score}, at least {limit}" + (f", but {differing}" if factors else "")


def _compared(verdict: CheckVerdict, run: Profile) -> str:
    if verdict.similarity is None or not verdict.not_compared:
        return ""
    why = ", because the check run has no Darshan log" if run.source == MEASURED else ""
    return f"; {len(SEEN) - len(verdict.not_compared)} of {len(SEEN)} factors are compared{why}"


def _factor(factor: Factor) -> str:
    log, run = similarity_rows.values(factor)
    return f"{_NAMES[factor.name]} ({log} against {run})"


def _score(similarity: float, tolerance: float) -> str:
    """Return the score with three decimals, or with more if it would otherwise seem to be on the other side of the
    tolerance.
    """
    short = f"{similarity:.3f}"
    is_right = (float(short) >= tolerance) == (similarity >= tolerance)
    return short if is_right else f"{similarity:.9g}"


def of_check(checked: Checked) -> Page:
    """Return the report of a check run."""
    page = similarity_page.of_pair(checked.log, checked.run, checked.compared, checked.known)
    lines = Lines(_lines(checked.absent), "yellow")
    return page._replace(
        title="Check of the derived workload: A is the log, B the check run",
        subtitle="",
        banner=banner_of(checked.verdict, checked.run),
        sections=[Section("Not derived from the log", [lines], page_order=1), *page.sections],
    )


def _lines(absent: NotDerived) -> list[str]:
    keys = [f"{key}: {workload_yaml.value(key, value)}" for key, value in absent.keys.items()]
    lines = [f"Unknown, the workload has defaults: {', '.join(keys)}."] if keys else []
    lines += absent.left_out
    if absent.untraced_bytes:
        lines.append(f"Not traced: {format_size(absent.untraced_bytes)} through STDIO.")
    lines += [f"Note: {note}" for note in absent.notes]
    return lines or ["Nothing: each key follows from the log, and no file is left out."]
