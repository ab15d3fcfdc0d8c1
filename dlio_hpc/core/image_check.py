"""Check of a container image: whether it can run the ranks of a job. The job script calls it in the image, before the
first run.
"""

import os
import re
from pathlib import Path

from dlio_hpc.base.errors import DlioError
from dlio_hpc.config.container import Container, parse_bind
from dlio_hpc.plan.plan import load

# Paths of MPI libraries in /proc/self/maps, such as /opt/cray/pe/lib64/libmpi_gnu_123.so.12.
_LIBRARY = re.compile(r"\S*/libmpi[^/\s]*\.so\S*")


def fault(path: str) -> str:
    """Return the reason why ranks in this image cannot run the plan at `path`. Return an empty text if they can run it.
    Raise ImportError if mpi4py finds no MPI library.
    """
    try:
        plan, _ = load(Path(path))
    except DlioError as error:
        return f"its dlio-hpc cannot read the plan of the job: {error}"
    image = plan.site.container
    return site_mpi_fault(image, _libraries()) if image is not None and image.mpi == "site" else ""


def site_mpi_fault(image: Container, libraries: list[str]) -> str:
    """Return an error message if the profile requests the MPI of the site but ranks load another MPI. libraries: paths
    of the MPI libraries that this process has loaded. If the profile itself binds no paths, an option of the container
    engine binds the site's MPI. The path of this MPI is then unknown, so return an empty text.
    """
    targets = [parse_bind(text).target.rstrip("/") for text in image.binds]
    if not targets or any(path.startswith(f"{target}/") for target in targets for path in libraries):
        return ""
    loaded = ", ".join(libraries) or "no libmpi"
    return (
        f"mpi4py loads {loaded} instead of the site's MPI (container.mpi=site); remove the MPI from the image, or "
        "name the library in rank_environment, such as MPI4PY_LIBMPI: /opt/PATH/libmpi.so.12"
    )


def _libraries() -> list[str]:
    """Return the paths of the MPI libraries that are loaded with mpi4py, with symbolic links resolved. MPI is not
    initialized.
    """
    import mpi4py

    mpi4py.rc.initialize = False
    from mpi4py import MPI  # noqa: F401

    text = Path("/proc/self/maps").read_text()
    return sorted({os.path.normpath(path) for path in _LIBRARY.findall(text)})
