"""A libdarshan for computers without one. The Python of each rank loads it as its sitecustomize (see recorder.py)."""

import shutil
from pathlib import Path


def install(folder: Path, early: bool = False) -> Path:
    """Write the library that LD_PRELOAD names. It only lies in the ranks' memory, as libdarshan does.

    early: a library before 3.4.
    """
    from tests.support.standins.login import library

    folder.mkdir(exist_ok=True)
    path = Path(shutil.copy(library(), folder / "libdarshan.so"))
    if not early:
        with path.open("ab") as file:
            file.write(b"\0DARSHAN_CONFIG_PATH\0")  # one of the strings of the real library
    return path


def rank_environment(faults: str = "") -> str:
    """Return the site's option that sets the environment of the ranks. faults: see recorder.Faults."""
    here = Path(__file__).parent
    path = f"{here}:{here.parents[3]}"
    return f"site.rank_environment={{PYTHONPATH: '{path}', LIBDARSHAN_FAULTS: '{faults}'}}"
