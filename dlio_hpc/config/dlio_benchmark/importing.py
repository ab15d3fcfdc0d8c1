"""Conversion of a workload of dlio_benchmark to a workload of dlio-hpc."""

from pathlib import Path
from typing import Any, NamedTuple

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.dlio_benchmark import dataset, large_models, reader, refusals, training
from dlio_hpc.config.dlio_benchmark.fact import Fact
from dlio_hpc.config.dlio_benchmark.keys import KEYS, REVISION, SWITCHES
from dlio_hpc.config.dlio_benchmark.source import HYDRA, SourceWorkload, hint_of, read


class Imported(NamedTuple):
    """A converted workload, and the facts about its keys."""

    source: SourceWorkload
    facts: tuple[Fact, ...]

    @property
    def data(self) -> dict[str, Any]:
        """The workload as plain data, as read from a YAML file."""
        data: dict[str, Any] = {
            "name": self.source.name,
            "description": self.description,
            "source": self.source.command,
        }
        for fact in self.facts:
            if fact.target:
                serialization.put(data, fact.target, fact.value, self.source.origin)
        return data

    @property
    def description(self) -> str:
        if large_models.is_alone(self.source):
            return "imported from dlio_benchmark: checkpoints of a large language model"
        loader = next(fact.value for fact in self.facts if fact.target == "reader.loader")
        return f"imported from dlio_benchmark: {self.source['dataset.format']}, read by loader {loader}"

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines about the keys that the file sets, and about other keys that have no equivalent. Keys that are probably
        misspelt come first.
        """
        others = (line(self.source, fact) for fact in self.facts if self.is_reported(fact) and not fact.misspelt)
        path = self.source.path
        misspelt = (
            f"warning: {serialization.in_file(path, tuple(fact.key.split('.')))}: {line(self.source, fact)}"
            for fact in self.facts
            if fact.misspelt
        )
        return (*misspelt, *others)

    def is_reported(self, fact: Fact) -> bool:
        """Return whether the fact is reported to the user: the file sets the key of the fact, or the fact changes
        requests.
        """
        return fact.key in self.source.values or fact.fate not in _QUIET

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for a plan on the keys that have no equivalent."""
        differing = tuple(line(self.source, fact) for fact in self.facts if fact.fate not in _QUIET)
        ignored = [self.source.old.get(fact.key, fact.key) for fact in self.facts if self._is_ignored(fact)]
        without_effect = (f"ignored, no effect on requests: {', '.join(ignored)}",) if ignored else ()
        misspelt = tuple(line(self.source, fact) for fact in self.facts if fact.misspelt)
        return (*misspelt, *differing, *without_effect)

    def _is_ignored(self, fact: Fact) -> bool:
        return fact.fate == "ignored" and fact.key in self.source.values and not fact.misspelt

    @property
    def differences(self) -> str:
        """The keys that are misspelt or whose requests differ, grouped by their outcome."""
        keys: dict[str, dict[str, None]] = {}
        for fact in self.facts:
            if fact.misspelt or fact.fate not in _QUIET:
                outcome = "misspelt" if fact.misspelt else fact.fate
                keys.setdefault(outcome, {})[self.source.old.get(fact.key, fact.key)] = None
        return "; ".join(f"{fate}: {', '.join(names)}" for fate, names in keys.items())


# Outcomes that change no requests.
_QUIET = ("mapped", "ignored")
_PARTS = (
    dataset.dataset, reader.reader, reader.order, training.times, training.train, training.checkpoint,
    training.evaluation,
)  # fmt: skip


# Characters of a value that are shown.
_LONGEST = 200


def line(source: SourceWorkload, fact: Fact) -> str:
    """Return the outcome for a key as a line of text."""
    key = source.old.get(fact.key, fact.key)
    given = f"{key}: {_short(str(source.values[fact.key]))}" if fact.key in source.values else key
    to = f" to {fact.target}={_short(_plain(fact.value))}" if fact.target else ""
    return f"{given}: {fact.fate}{to}{f' ({fact.text})' if fact.text else ''}"


def _short(value: str) -> str:
    """Return the text of a value, cut if it is long, such as a list of many columns."""
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 4]} ..."


def _plain(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def load(path: Path, overrides: tuple[str, ...] = ()) -> Imported:
    """Read and convert a workload file of dlio_benchmark. overrides: in the form of Hydra, such as
    ++workload.reader.batch_size=4. Raise ConfigError if dlio-hpc cannot make the same requests.
    """
    return converted(read(path, overrides))


def converted(source: SourceWorkload) -> Imported:
    """Convert a workload. Raise ConfigError if dlio-hpc cannot make the same requests."""
    if large_models.is_alone(source):
        facts = list(large_models.checkpoints(source))
    else:
        refusals.check(source)
        facts = [fact for part in _PARTS for fact in part(source)]
    keys = {fact.key for fact in facts}
    facts += [_without_effect(source, key) for key in source.values if key not in keys]
    if not any(fact.key in source.values and fact.fate != "ignored" for fact in facts):
        ignored = "; ".join(line(source, fact) for fact in facts if fact.key in source.values)
        raise ConfigError(
            f"{source.origin}: not a workload of dlio_benchmark: no key of the file has an effect: {ignored}"
        )
    if source.outside:
        names = ", ".join(source.outside)
        reason = (
            f"imported together with the sections next to it ({names}); dlio_benchmark itself reads "
            "either the section workload or these sections"
        )
        facts.append(Fact("workload", "approximated", reason))
    return Imported(source, tuple(facts))


def _without_effect(source: SourceWorkload, key: str) -> Fact:
    """Return the fact about a key that has no effect on the workload."""
    if key in KEYS and large_models.is_alone(source):
        return Fact(key, "ignored", large_models.without_effect(key))
    if key in KEYS:
        switch = next((on for section, on in SWITCHES.items() if key.startswith(section)), "")
        reason = f"{switch} is False" if switch and not source[switch] else "no effect in this workload"
        return Fact(key, "ignored", KEYS[key].without_effect or reason)
    if key == "defaults" and source.values[key] != ["_self_"]:
        return Fact(
            key,
            "left out",
            "Hydra adds other files here, whose keys are not imported; give the file that Hydra composes",
        )
    if key.partition(".")[0] in HYDRA:
        return Fact(key, "ignored", "an option of Hydra, not of the workload")
    hint = hint_of(key)
    return Fact(key, "ignored", f"{hint}dlio_benchmark {REVISION} has no such key", misspelt=bool(hint))
