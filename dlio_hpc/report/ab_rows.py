"""Two file systems compared, as sentences and rows of text: the terminal and the page show the same."""

from collections.abc import Sequence

from dlio_hpc.analysis.page_cache_check import LIMIT
from dlio_hpc.analysis.study.file_system_pairs import Effect
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.stragglers import Member
from dlio_hpc.metrics import METRICS
from dlio_hpc.plan.study import Study
from dlio_hpc.report import study_rows
from dlio_hpc.report.ab_stragglers import Side

EFFECTS = ("what was read", "pairs", "A", "B", "B / A", "95 % interval", "beyond noise")
MEMBERS = ("name", "runs", "MB/s", "of the median", "")


def sides(found: tuple[Side, ...]) -> list[str]:
    """Which is which, one a line; and a word of caution where they are the same."""
    told = [
        f"{letter} is {side.folder}{f', on {side.file_system}' if side.file_system else ''}"
        for letter, side in zip("AB", found, strict=True)
    ]
    if len({side.file_system for side in found}) == 1 and found[0].file_system:
        told.append("Both lie on the same file system: only what is different between the folders can differ.")
    return told


def cached(measured: Sequence[Measured]) -> list[str]:
    """A word of caution where it was not the storage that was compared."""
    shares = [one.cached for one in measured]
    if not shares or all(share is not None and share <= LIMIT for share in shares):
        return []
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        return ["UNKNOWN: nothing tells whether storage was read; this may compare memory."]
    return [f"cached: up to {100 * max(known):.0f} % came from memory; this does not compare storage."]


def verdict(study: Study, effects: tuple[Effect, ...]) -> str:
    """One sentence, of all settings together where there are several."""
    if not effects:
        return "No pair was measured yet."
    whole = effects[-1]
    names = dict(zip("AB", study.folders, strict=True))
    by = METRICS[whole.metric].noun
    if whole.low is None or whole.high is None:
        return f"B is {whole.ratio:.3g} x A by {by}; one pair tells nothing of the noise: use --repeat 4 or more."
    interval = f"95 % interval {whole.low:.3f} to {whole.high:.3f}, {whole.pairs} pairs"
    if whole.better is None:
        return f"No difference beyond noise between A and B: B is {whole.ratio:.3g} x A by {by} ({interval})."
    slower, faster = ("A", "B") if whole.better == "B" else ("B", "A")
    ratio = whole.ratio if whole.better == "A" else 1 / whole.ratio
    told = f"{slower} ({names[slower]}) is the slower one: {ratio:.3g} x {faster} by {by}"
    return f"{told} (B / A {whole.ratio:.3g}, {interval})."


def effect(one: Effect) -> list[str]:
    interval = "unknown" if one.low is None or one.high is None else f"{one.low:.3f} to {one.high:.3f}"
    a, b = ("" if value is None else study_rows.figure(value, one.metric) for value in (one.a, one.b))
    what = "no" if one.better is None else f"{one.better} is better"
    return [one.setting or "all together", str(one.pairs), a, b, f"{one.ratio:.3g}", interval, what]


def members(side: Side) -> list[tuple[str, list[list[str]]]]:
    """Title and rows of each table that there is."""
    told = [("nodes", side.nodes), ("storage targets", side.targets)]
    return [
        (f"{side.folder}: {what}, the slowest first", [_member(one) for one in some]) for what, some in told if some
    ]


def _member(one: Member) -> list[str]:
    flag = "straggler" if one.is_straggler else ""
    return [one.name, str(one.runs), f"{one.MBps:.4g}", f"{100 * one.ratio:.0f} %", flag]


def stragglers(found: tuple[Side, ...]) -> list[str]:
    """What is slower than its likes, and where nothing could be compared."""
    told, unknown = [], []
    for side in found:
        slow = [one for one in (*side.nodes, *side.targets) if one.is_straggler]
        told += [f"Straggler below {side.folder}: {one.name}, {100 * one.ratio:.0f} % of the median." for one in slow]
        if not side.nodes:
            unknown.append(side.folder)
    if unknown:
        told.append(f"No stragglers among nodes: one node, or reads were not timed ({', '.join(unknown)}).")
    return told
