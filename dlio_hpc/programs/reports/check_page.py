"""Report of characterize --check: the verdict, the values that were not derived, the comparison of the steps, and the
similarity to the log.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from dlio_hpc.base.units import format_seconds, format_size
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.emulation_check import CheckVerdict
from dlio_hpc.programs.reports import similarity_page, similarity_rows, workload_yaml
from dlio_hpc.programs.similarity.io_profile import MEASURED, Profile
from dlio_hpc.programs.similarity.similarity import SEEN, Factor, Similarity, Yardsticks
from dlio_hpc.programs.step_check import StepFactor, StepFigure, StepVerdict
from dlio_hpc.records.outcomes import OUTCOMES, Outcome
from dlio_hpc.reports.banner import Banner, gravest, state_of
from dlio_hpc.reports.page import Lines, Page, Section, Table

# Outcomes of a check, from the gravest. A difference that was measured is graver than what was not.
_GRAVITY: list[Outcome] = ["fail", "incomplete", "pass"]
_STEPS: dict[StepFigure, tuple[str, Callable[[float], str]]] = {
    "steps": ("steps of an epoch", lambda value: f"{value:,.0f}"),
    "bytes": ("bytes of a step", format_size),
    "compute_s": ("computation of a step", format_seconds),
    "wait_s": ("wait of a step", format_seconds),
}
_STEP_HEADER = ("figure", "program", "check run", "difference", "verdict")
_TITLE = "Check of the derived workload"
_MORE = "--html FILE writes a page with both programs, the measures of similarity, and the distributions of requests."
_WAIT = "The wait is not judged: it depends on storage, on caches, and on "
_NO_IMAGES = "what the program does to samples, such as decoding, which the workload may not do."
_IMAGES = "decoding. The workload decodes images, too, but not the same images."
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
    """Parts of the program's I/O that the workload does not take from the log or the recording. keys: default values of
    keys that the log or the recording does not show. left_out: lines on files that are left out. untraced_bytes: bytes
    that the log counts but does not trace. notes: limitations of the log.
    """

    keys: dict[str, Any]
    left_out: list[str]
    untraced_bytes: int
    notes: list[str]


class CheckedRequests(NamedTuple):
    """Requests of a check run and of the log. log, run: profiles. known: scores of published pairs of programs."""

    verdict: CheckVerdict
    log: Profile
    run: Profile
    compared: Similarity
    known: Yardsticks


class Checked(NamedTuple):
    """A check run, compared with the program. requests: None without a log. steps: None without recorded steps. One of
    the two is always known. is_decoded: whether the check run decoded images.
    """

    absent: NotDerived
    requests: CheckedRequests | None
    steps: StepVerdict | None
    is_decoded: bool = False

    @property
    def exit_code(self) -> int:
        """Exit code of the more severe verdict."""
        verdicts = [self.requests and self.requests.verdict, self.steps]
        outcomes = [verdict.outcome for verdict in verdicts if verdict is not None]
        return OUTCOMES[min(outcomes, key=_GRAVITY.index)].exit_code


def not_derived(character: Character, untraced_bytes: int) -> NotDerived:
    """Return the parts of the program's I/O that are not derived from the log. untraced_bytes: bytes that the log
    counts but does not trace.
    """
    keys = {key: made.value for key, made in character.derived.keys.items() if made.confidence == "unknown"}
    return NotDerived(keys, workload_yaml.left_out(character.derived.roles), untraced_bytes, character.notes)


def banner_of(verdict: CheckVerdict, run: Profile) -> Banner:
    """Return the banner: the score, the tolerance, and the factors that differ. Each factor has its value for the log
    and its value for the run. run: profile of the check run.
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
    """Return the score with three decimals. If rounding moves the score to the other side of the tolerance, return more
    decimals.
    """
    short = f"{similarity:.3f}"
    is_right = (float(short) >= tolerance) == (similarity >= tolerance)
    return short if is_right else f"{similarity:.9g}"


def banner_of_steps(verdict: StepVerdict) -> Banner:
    """Return the banner of the steps: the values that agree, and the values that differ."""
    state = state_of(verdict.exit_code)
    if verdict.outcome == "fail":
        differing = [_step_figure(factor) for factor in verdict.differing]
        cause = f" The cause: {verdict.cause}." if verdict.cause else ""
        return Banner(state, f"{_differ(differing)}.{cause}")
    if verdict.lost:
        differing = [_step_figure(factor) for factor in verdict.differing]
        return Banner(
            state, f"the recording is in doubt: {verdict.lost}; {_differ(differing)}. Record the program again."
        )
    known = [_STEPS[factor.name][0] for factor in verdict.factors if factor.is_judged and factor.apart is not None]
    if verdict.outcome == "incomplete" and verdict.doubt:
        return Banner(state, f"the check run may read other data than the program: {verdict.doubt}.")
    if verdict.outcome == "incomplete":
        why = "" if "bytes of a step" in known else "; without the bytes of a step, data are not compared"
        return Banner(state, f"too few values of a step are known for a verdict: {', '.join(known) or 'none'}{why}.")
    percent = f"{100 * (1 - verdict.tolerance):.3g} %"
    return Banner(state, f"{', '.join(known)} agree with the recorded program within {percent}.")


def _differ(names: list[str]) -> str:
    return f"{', '.join(names)} {'differs' if len(names) == 1 else 'differ'}"


def _step_figure(factor: StepFactor) -> str:
    name, shown = _STEPS[factor.name]
    program, run = ("unknown" if value is None else shown(value) for value in (factor.program, factor.run))
    return f"{name} ({program} against {run})"


def banner_of_both(checked: Checked) -> Banner:
    """Return the banner of a check. It begins with the more severe verdict, followed by the other verdict or by what
    was not compared.
    """
    banners = []
    if checked.steps is not None:
        banners.append(banner_of_steps(checked.steps))
    if checked.requests is not None:
        banners.append(banner_of(checked.requests.verdict, checked.requests.run))
    if len(banners) == 1:
        more = "" if checked.requests is not None else " Requests are not compared: there is no log of the program."
        return banners[0]._replace(text=banners[0].text + more)
    first = gravest(banners)
    (other,) = (banner for banner in banners if banner is not first)
    return first._replace(text=f"{first.text} {other.label}: {other.text}")


def of_check(checked: Checked) -> Page:
    """Return the report of a check run. The comparison comes first; only the HTML page has all details."""
    lines = Section("Not derived", [Lines(_lines(checked.absent), "yellow")], page_order=1)
    steps = [] if checked.steps is None else [_step_section(checked.steps, checked.is_decoded)]
    requests = checked.requests
    if requests is None:
        return Page(_TITLE, "", banner_of_both(checked), [], [*steps, lines])
    lines = lines._replace(blocks=[*lines.blocks, Lines([_MORE], "dim", is_for_terminal=True)])
    page = similarity_page.of_pair(requests.log, requests.run, requests.compared, requests.known)
    factors, *details = page.sections
    return page._replace(
        title=f"{_TITLE}: A is the log, B the check run",
        subtitle="",
        banner=banner_of_both(checked),
        facts=[facts._replace(is_detail=True) for facts in page.facts],
        sections=[*steps, factors, lines, *(section._replace(is_detail=True) for section in details)],
    )


def _step_section(verdict: StepVerdict, is_decoded: bool) -> Section:
    rows = []
    for factor in verdict.factors:
        name, shown = _STEPS[factor.name]
        cells = ["-" if value is None else shown(value) for value in (factor.program, factor.run)]
        apart = "-" if factor.apart is None else f"{factor.apart:.1%}"
        rows.append([name, *cells, apart, _judgement(factor, verdict)])
    legend = _WAIT + (_IMAGES if is_decoded else _NO_IMAGES)
    return Section("Steps", [Table("", _STEP_HEADER, rows, legend=legend)], page_order=1)


def _judgement(factor: StepFactor, verdict: StepVerdict) -> str:
    if not factor.is_judged:
        return "not judged"
    if factor.apart is None:
        return "unknown"
    return "differs" if factor in verdict.differing else "agrees"


def _lines(absent: NotDerived) -> list[str]:
    keys = [f"{key}: {workload_yaml.value(key, value)}" for key, value in absent.keys.items()]
    lines = [f"Unknown, the workload has defaults: {', '.join(keys)}."] if keys else []
    lines += absent.left_out
    if absent.untraced_bytes:
        lines.append(f"Not traced: {format_size(absent.untraced_bytes)} through STDIO.")
    lines += [f"Note: {note}" for note in absent.notes]
    return lines or ["Nothing: no key has a default, and no file is left out."]
