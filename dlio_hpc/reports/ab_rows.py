"""Comparison of two file systems as sentences and table rows, for the terminal and the HTML page."""

from collections.abc import Sequence

from dlio_hpc.analysis.study import file_system_pairs
from dlio_hpc.analysis.study.file_system_pairs import PairedEffect
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.stragglers import Throughput
from dlio_hpc.base.units import counted
from dlio_hpc.plan.study import Study
from dlio_hpc.reports import study_rows
from dlio_hpc.reports.ab_stragglers import Arm
from dlio_hpc.results.metrics import METRICS

EFFECTS = ("setting", "pairs", "A", "B", "B / A", "95 % interval", "beyond noise")
MEMBERS = ("name", "runs", "MB/s", "of the median", "")


def sides(compared: tuple[Arm, ...]) -> list[str]:
    """Return one line per file system, followed by a note if both directories are on the same file system."""
    lines = [
        f"{letter} is {side.folder}{f', on {side.file_system}' if side.file_system else ''}"
        for letter, side in zip("AB", compared, strict=True)
    ]
    if len({side.file_system for side in compared}) == 1 and compared[0].file_system:
        lines.append("Both directories are on the same file system; this compares only the directories.")
    return lines


def cached(measured: Sequence[Measured]) -> list[str]:
    """Return a list with one warning if the bytes of any measurement came from memory or from an unknown origin.
    Otherwise, return an empty list.
    """
    origins = {measurement.origin for measurement in measured}
    if "unknown" in origins:
        return [
            "UNKNOWN: it is not known whether all bytes came from storage; this may be a comparison of memory instead "
            "of storage."
        ]
    if "cached" not in origins:
        return []
    shares = [measurement.cached for measurement in measured if measurement.cached is not None]
    most = f"up to {100 * max(shares):.0f} %" if shares else "a share"
    return [f"cached: {most} of the bytes came from memory; this does not compare storage."]


def verdict(study: Study, effects: tuple[PairedEffect, ...]) -> str:
    """Return the verdict on the two file systems. The verdict is based on the only effect or, if the study has several
    settings, on the effect over all settings together. If that effect shows no difference, a second sentence names the
    settings that show a difference. If settings have different metrics, each setting has its own sentence.
    """
    if not effects:
        return "No pair has been measured yet."
    wholes = file_system_pairs.overall(effects)
    if len(wholes) > 1:
        return " ".join(f"{whole.setting}: {_of_whole(study, whole, (whole,))}" for whole in wholes)
    return _of_whole(study, wholes[0], effects)


def _of_whole(study: Study, overall: PairedEffect, effects: tuple[PairedEffect, ...]) -> str:
    names = dict(zip("AB", study.folders, strict=True))
    metric = METRICS[overall.metric].noun
    if overall.low is None or overall.high is None:
        return f"B is {overall.ratio:.3g} x A by {metric}; one pair does not show the noise: use --repeat 4 or more."
    interval = f"95 % interval {overall.low:.3f} to {overall.high:.3f}, {overall.pairs} pairs"
    if overall.better is None:
        over = " over all settings" if len(effects) > 1 and not overall.setting else ""
        sentence = f"No difference beyond noise between A and B{over}: B is {overall.ratio:.3g} x A by {metric}"
        return " ".join([f"{sentence} ({interval}).", *_single(effects)])
    slower, faster = ("A", "B") if overall.better == "B" else ("B", "A")
    ratio = overall.ratio if overall.better == "A" else 1 / overall.ratio
    sentence = f"{slower} ({names[slower]}) is slower: {ratio:.3g} x {faster} by {metric}"
    return f"{sentence} (B / A {overall.ratio:.3g}, {interval})."


def _single(effects: tuple[PairedEffect, ...]) -> list[str]:
    """Return a sentence for each file system that is slower with a single setting. Return an empty list if there is
    none.
    """
    sentences = []
    for slower, better in ("BA", "AB"):
        named = [f"{effect.setting} (B / A {effect.ratio:.3g})" for effect in effects if effect.better == better]
        if named:
            more = f" and {counted(len(named) - 1, 'more setting')}" if len(named) > 1 else ""
            sentences.append(f"But {slower} is slower with {named[0]}{more}.")
    return sentences


def noise(effects: tuple[PairedEffect, ...]) -> list[str]:
    """Return sentences on the intervals of several settings and on the noise that they depend on. Return an empty list
    for a single setting, or if the noise is unknown.
    """
    settings = [effect for effect in effects if effect.setting]
    noises = [effect.noise for effect in settings if effect.noise is not None]
    if len(settings) < 2 or not noises:
        return []
    joint = "Intervals are simultaneous: with 95 % confidence, all of them contain the true ratio."
    if all(effect.is_noise_shared for effect in settings):
        return [f"{joint} They use the noise that the settings share: {100 * noises[0]:.2g} % of the ratio of a pair."]
    least, most = min(noises), max(noises)
    return [
        f"{joint} The noise of the settings may differ (from {100 * least:.2g} to {100 * most:.2g} % of the ratio of "
        f"a pair). Each interval therefore uses the noise of its own setting, if that is larger than the noise of all "
        f"settings."
    ]


def effect(result: PairedEffect) -> list[str]:
    """Return the table row for an effect (header: EFFECTS)."""
    interval = "unknown" if result.low is None or result.high is None else f"{result.low:.3f} to {result.high:.3f}"
    a, b = ("" if value is None else study_rows.with_unit(value, result.metric) for value in (result.a, result.b))
    conclusion = "no" if result.better is None else f"{result.better} is better"
    return [result.setting or "all together", str(result.pairs), a, b, f"{result.ratio:.3g}", interval, conclusion]


def members(side: Arm) -> list[tuple[str, list[list[str]]]]:
    """Return the table of the nodes and the table of the storage targets. Each table is a pair of a title and rows; a
    table without rows is left out.
    """
    kinds = [("nodes", side.nodes), ("storage targets", side.targets)]
    return [
        (f"{side.folder}: {kind}, slowest first", [_member(member) for member in listed])
        for kind, listed in kinds
        if listed
    ]


def _member(member: Throughput) -> list[str]:
    flag = "straggler" if member.is_straggler else ""
    return [member.name, str(member.runs), f"{member.MBps:.4g}", f"{100 * member.ratio:.0f} %", flag]


def stragglers(compared: tuple[Arm, ...]) -> list[str]:
    """Return one sentence per straggler. If the nodes cannot be compared with each other on a file system, add a
    sentence that names the dataset directories on such file systems.
    """
    lines, unknown = [], []
    for side in compared:
        slow = [member for member in (*side.nodes, *side.targets) if member.is_straggler]
        lines += [
            f"Straggler in {side.folder}: {member.name}, {100 * member.ratio:.0f} % of the median." for member in slow
        ]
        if not side.nodes:
            unknown.append(side.folder)
    if unknown:
        lines.append(
            f"Unknown whether nodes are stragglers in {' and '.join(unknown)}: there was only one node, or reads were "
            f"not timed."
        )
    return lines
