"""Jobs whose ranks run in an image without files of its own, into which the files of this computer are bound."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dlio_hpc
from tests.support.standins import engines

ROOT = Path(dlio_hpc.__file__).parents[1]
# A function from keys of the container to the options of a submission.
Boxed = Callable[..., tuple[str, ...]]


def prepared(engine: str, folder: Path, setenv: Callable[[str, str], None]) -> Iterator[Boxed]:
    """Make an image, and yield the function. The engine is the real one if it is on PATH, otherwise a stand-in."""
    image = engines.image(folder / "images" / "dlio-hpc-test:1")
    if shutil.which(engine) is None:
        if why := engines.missing():
            pytest.skip(why)
        setenv("PATH", f"{engines.install(folder / 'engines')}:{os.environ['PATH']}")
        setenv("CONTAINER_IMAGES", str(folder / "images"))
    elif engine == "podman-hpc":
        tar = subprocess.run(["tar", "-C", image, "-c", "."], check=True, capture_output=True).stdout
        subprocess.run([engine, "import", "-", image.name], input=tar, check=True, capture_output=True)
    yield lambda **keys: _options(engine, image.name if engine == "podman-hpc" else str(image), keys)
    if engine == "podman-hpc" and shutil.which(engine) is not None and "CONTAINER_IMAGES" not in os.environ:
        subprocess.run([engine, "rmi", "--force", image.name], check=False, capture_output=True)


def _options(engine: str, image: str, keys: dict[str, object]) -> tuple[str, ...]:
    system = {path for path in ("/usr", "/etc", "/lib", "/lib64", "/bin") if not Path(path).is_symlink()}
    bound = sorted(path for path in {sys.prefix, sys.base_prefix, str(ROOT)} | system if Path(path).exists())
    # Apptainer mounts /tmp and the home by itself, which would hide what is missing.
    hidden = ["--no-mount=home,tmp,cwd"] if engine == "apptainer" else []
    binds = [f"{path}:ro" for path in bound]
    key = {"engine": engine, "image": image, "python": sys.executable, "options": hidden, "binds": binds, **keys}
    return "-S", f"site.container={json.dumps(key)}", "-S", f"site.rank_environment.PYTHONPATH={ROOT}"


# Variables of the job script and of the ranks, for check().
VARIABLES = (
    "-S", "site.rank_environment.OMP_NUM_THREADS='3'", "-S", "site.environment.OPENBLAS_NUM_THREADS='2'",
)  # fmt: skip


def check(directory: Path) -> None:
    """Check that the ranks of a job ran in the image, with the profile's variables and without those of the job."""
    ranks = json.loads((directory / "environment.json").read_bytes())["variables"]
    assert ranks["OMP_NUM_THREADS"] == "3"
    assert ranks["OPENBLAS_NUM_THREADS"] == "2"
    assert ranks["PYTHONPATH"] == str(ROOT)
    assert "LD_PRELOAD" not in ranks
    assert "\n".join((directory / "job.out").read_text().splitlines()[:2]) == "== container\n== layout before"
