"""Names and titles of the groups of a history. A name, such as "nightly images: imagenet on theta, 2 x 4 ranks",
consists of the study, the title of the study's point, and the title of the measurement key. A title is a name, followed
by the file system, the layout, the version of dlio-hpc and, if needed, the settings in which groups differ.
"""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dlio_hpc.plan.plan import workload_of
from dlio_hpc.verdict import history_entry as entries_
from dlio_hpc.verdict.history_entry import Key
from dlio_hpc.verdict.run_groups import Group

# Maximum number of settings in a title.
_MOST = 3


def name(group: Group) -> str:
    """Return the name of a group, such as "nightly images: imagenet on theta, 2 x 4 ranks"."""
    point = entries_.point_title(group.title, group.key)
    study = workload_of(group.study) if point else ""
    label = " ".join(filter(None, (study if study != group.key.workload else "", point)))
    return f"{label}: {group.key.title}" if label else group.key.title


def titles(groups: Sequence[Group]) -> list[str]:
    """Return one title per group. Groups with different measurement keys get different titles. If groups would have the
    same title, a few of the settings in which they differ are appended. The digest of all settings is appended too if
    the groups differ in further settings, or if titles are still equal.
    """
    names = [_place(name(group), group.key) for group in groups]
    alike = [[group for group, title in zip(groups, names, strict=True) if title == own_title] for own_title in names]
    detailed = [_with_settings(title, *_differing(group, same_named)) for title, group, same_named in
             zip(names, groups, alike, strict=True)]  # fmt: skip
    again = Counter(title for title, _ in {(title, group.key) for title, group in zip(detailed, groups, strict=True)})
    return [
        f"{title}; settings {group.key.settings}" if again[title] > 1 else title
        for title, group in zip(detailed, groups, strict=True)
    ]


def _place(title: str, key: Key) -> str:
    layout = "" if key.layout in ("none", "unknown") else f", {key.layout}"
    return f"{title}; {key.place}{layout}; as dlio-hpc {key.version}"


def _with_settings(title: str, differing: Sequence[str], digest: str) -> str:
    if not differing:
        return title
    more = f" and {len(differing) - _MOST} more, settings {digest}" if len(differing) > _MOST else ""
    return f"{title}; {', '.join(differing[:_MOST])}{more}"


def _differing(group: Group, alike: Sequence[Group]) -> tuple[list[str], str]:
    """Return two values. The first is a list of the settings that differ between the groups `alike`; each item is
    KEY=VALUE with the value in `group`. The second is the digest of all settings of `group`. alike: the groups that
    have the same name as `group`, including `group`.
    """
    settings = [dict(entries_.flat(similar.workload)) for similar in alike]
    values = dict(entries_.flat(group.workload))
    keys = dict.fromkeys(key for workload in settings for key in workload)
    assignments = [
        f"{key}={_shown(values.get(key))}"
        for key in keys
        if len({json.dumps(workload.get(key), sort_keys=True) for workload in settings}) > 1
    ]
    return assignments, group.key.settings


def _shown(value: Any) -> str:
    return json.dumps(value) if isinstance(value, (bool, list, dict)) or value is None else str(value)
