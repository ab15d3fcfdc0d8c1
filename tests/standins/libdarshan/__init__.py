"""A libdarshan for computers that have none: each rank's Python loads it as its sitecustomize (see recorder.py)."""

import shutil
from pathlib import Path


def install(folder: Path, early: bool = False) -> Path:
    """What LD_PRELOAD names; it does nothing but lie in the ranks' memory, as libdarshan does.

    early: one before 3.4.
    """
    from tests.standins.login import library

    folder.mkdir(exist_ok=True)
    path = Path(shutil.copy(library(), folder / "libdarshan.so"))
    if not early:
        with path.open("ab") as file:
            file.write(b"\0DARSHAN_CONFIG_PATH\0")  # among the real one's strings
    return path


def rank_environment(faults: str = "") -> str:
    """Of the site, as an option's value. faults: see recorder.Faults."""
    here = Path(__file__).parent
    path = f"{here}:{here.parents[2]}"
    return f"site.rank_environment={{PYTHONPATH: '{path}', LIBDARSHAN_FAULTS: '{faults}'}}"
