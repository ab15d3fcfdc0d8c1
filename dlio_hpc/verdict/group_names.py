"""Names of the groups of a history: parts of a suite and points of a study by name, differing settings in words."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dlio_hpc.plan.plan import workload_of
from dlio_hpc.verdict import history_entry as entries_
from dlio_hpc.verdict.history_entry import Key
from dlio_hpc.verdict.run_groups import Group

# Settings that a title lists.
_MOST = 3


def name(group: Group) -> str:
    """The group in a few words, such as "nightly images: imagenet on theta, 2 x 4 ranks"."""
    point = "" if group.title == group.key.workload else group.title
    study = workload_of(group.study) if point else ""
    label = " ".join(filter(None, (study if study != group.key.workload else "", point)))
    return f"{label}: {group.key.title}" if label else group.key.title


def titles(groups: Sequence[Group]) -> list[str]:
    """A title for each group; groups of different keys have different titles. Groups with the same name list the
    settings that differ. The digest of all settings is added where these are the same too, or too many.
    """
    names = [_place(name(group), group.key) for group in groups]
    alike = [[other for other, title in zip(groups, names, strict=True) if title == mine] for mine in names]
    detailed = [_with_settings(title, *_differing(group, some)) for title, group, some in
             zip(names, groups, alike, strict=True)]  # fmt: skip
    again = Counter(title for title, _ in {(title, group.key) for title, group in zip(detailed, groups, strict=True)})
    return [
        f"{title}; settings {group.key.settings}" if again[title] > 1 else title
        for title, group in zip(detailed, groups, strict=True)
    ]


def _place(title: str, key: Key) -> str:
    layout = "" if key.layout in ("none", "unknown") else f", {key.layout}"
    return f"{title}; {key.file_system}{layout}; dlio-hpc {key.version}"


def _with_settings(title: str, differing: Sequence[str], digest: str) -> str:
    if not differing:
        return title
    more = f" and {len(differing) - _MOST} more, settings {digest}" if len(differing) > _MOST else ""
    return f"{title}; {', '.join(differing[:_MOST])}{more}"


def _differing(group: Group, alike: Sequence[Group]) -> tuple[list[str], str]:
    """The group's values of the settings in which these groups differ, and the digest of all its settings."""
    settings = [dict(entries_.flat(other.workload)) for other in alike]
    mine = dict(entries_.flat(group.workload))
    keys = dict.fromkeys(key for workload in settings for key in workload)
    assignments = [
        f"{key}={_shown(mine.get(key))}"
        for key in keys
        if len({json.dumps(workload.get(key), sort_keys=True) for workload in settings}) > 1
    ]
    return assignments, group.key.settings


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, list, dict)) or value is None else str(value)
