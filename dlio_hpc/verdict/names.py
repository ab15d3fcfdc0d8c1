"""What groups of a history are called: parts of a suite and points of a study by their names, settings in words."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dlio_hpc.plan import workload_of
from dlio_hpc.verdict import entry as entries_
from dlio_hpc.verdict.entry import Key
from dlio_hpc.verdict.groups import Group

# Settings that are named beside each other.
_MOST = 3


def name(group: Group) -> str:
    """In a few words: "nightly images: imagenet on theta, 2 x 4 ranks"."""
    point = "" if group.title == group.key.workload else group.title
    study = workload_of(group.study) if point else ""
    told = " ".join(filter(None, (study if study != group.key.workload else "", point)))
    return f"{told}: {group.key.title}" if told else group.key.title


def titles(groups: Sequence[Group]) -> list[str]:
    """Of each group, all that tells it from the others: where names are alike the settings that differ, and the digest
    of all settings where even these are alike, or too many.
    """
    names = [_place(name(group), group.key) for group in groups]
    alike = [[other for other, told in zip(groups, names, strict=True) if told == mine] for mine in names]
    found = [_with_settings(told, *_differing(group, some)) for told, group, some in
             zip(names, groups, alike, strict=True)]  # fmt: skip
    again = Counter(told for told, _ in {(told, group.key) for told, group in zip(found, groups, strict=True)})
    return [
        f"{told}; settings {group.key.settings}" if again[told] > 1 else told
        for told, group in zip(found, groups, strict=True)
    ]


def _place(told: str, key: Key) -> str:
    layout = "" if key.layout in ("none", "unknown") else f", {key.layout}"
    return f"{told}; {key.file_system}{layout}; dlio-hpc {key.version}"


def _with_settings(told: str, differing: Sequence[str], digest: str) -> str:
    if not differing:
        return told
    more = f" and {len(differing) - _MOST} more, settings {digest}" if len(differing) > _MOST else ""
    return f"{told}; {', '.join(differing[:_MOST])}{more}"


def _differing(group: Group, alike: Sequence[Group]) -> tuple[list[str], str]:
    """Of the settings in which these groups differ, the group's; and the digest of all."""
    settings = [dict(entries_.flat(other.workload)) for other in alike]
    mine = dict(entries_.flat(group.workload))
    keys = dict.fromkeys(key for each in settings for key in each)
    told = [
        f"{key}={_shown(mine.get(key))}"
        for key in keys
        if len({json.dumps(each.get(key), sort_keys=True) for each in settings}) > 1
    ]
    return told, group.key.settings


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, list, dict)) or value is None else str(value)
