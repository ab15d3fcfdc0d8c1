"""A libdarshan for computers that have none: each rank's Python loads it as its sitecustomize (see recorder.py)."""

import shutil
from pathlib import Path


def install(folder: Path) -> Path:
    """What LD_PRELOAD names; it does nothing but lie in the ranks' memory, as libdarshan does."""
    from tests.standins.login import library

    folder.mkdir(exist_ok=True)
    return Path(shutil.copy(library(), folder / "libdarshan.so"))


def rank_environment(faults: str = "") -> str:
    """Of the site, as an option's value. faults: see recorder.Faults."""
    here = Path(__file__).parent
    path = f"{here}:{here.parents[2]}"
    return f"site.rank_environment={{PYTHONPATH: '{path}', LIBDARSHAN_FAULTS: '{faults}'}}"
