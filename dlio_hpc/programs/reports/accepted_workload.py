"""A derived workload that dlio-hpc accepts. If two values contradict each other, one of them is left at its default."""

import re
import tempfile
from pathlib import Path

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import workload
from dlio_hpc.programs.characterize.characterize import Character
from dlio_hpc.programs.characterize.evidence import DerivedValue, sureness
from dlio_hpc.programs.reports import workload_yaml

# Keys without which there is no workload.
_NEEDED = ("dataset.format", "dataset.files", "dataset.samples_per_file", "dataset.sample.")
_KEY = re.compile(r"[a-z_]+(?:\.[a-z_]+)*")


def write(character: Character, name: str) -> tuple[Character, str]:
    """Return the text of the workload, and the character without the values that were left out. Raise ConfigError if
    the workload is refused even without these values.
    """
    while True:
        text = workload_yaml.write(character, name)
        fault = _fault(text)
        if fault is None:
            return character, text
        key = _blamed(fault, character.derived.keys)
        if key is None:
            raise ConfigError(f"the derived workload is refused: {fault}; report this, with the log or the recording")
        keys = {other: value for other, value in character.derived.keys.items() if other != key}
        note = f"{key} is left at its default, not {character.derived.keys[key].value}: {fault}"
        character = character._replace(derived=character.derived._replace(keys=keys), notes=[*character.notes, note])


def _fault(text: str) -> str | None:
    """Return the reason why the workload is refused, or None if it is accepted."""
    with tempfile.TemporaryDirectory(prefix="dlio-hpc-") as folder:
        path = Path(folder) / "derived.yaml"
        path.write_text(text, encoding="utf-8")
        try:
            workload.load(str(path))
        except ConfigError as fault:
            return str(fault).replace(f"{path}: ", "").replace(str(path), "the workload")
    return None


def _blamed(fault: str, keys: dict[str, DerivedValue]) -> str | None:
    """Return the key with the lowest confidence among the keys that a fault names, or None if none of them can be left
    out.
    """
    named = [key for word in _KEY.findall(fault) for key in keys if key == word or key.endswith(f".{word}")]
    spare = [key for key in named if not key.startswith(_NEEDED)]
    return min(spare, key=lambda key: sureness(keys[key].confidence), default=None)
