"""The options of commands that plan jobs: dlio-submit, dlio-hpc estimate and dlio-hpc check."""

from pathlib import Path

from msgspec import Struct

from dlio_hpc import units
from dlio_hpc.plan.plan import Generate


class Options(Struct, frozen=True, kw_only=True):
    """Options of a submission. An option that is None has the value of the study file, or else of the site profile, or
    else the built-in default.
    """

    workload: str | None = None
    """Name of a shipped workload, or path of a YAML file; the name of a suite works too. Exactly one of workload, study
    and suite is given.
    """
    study: str | None = None
    """Name of a shipped study, or path of a YAML file."""
    suite: str | None = None
    """Name of a shipped suite, or path of a YAML file. A suite is a study with a verdict."""
    full: bool = False
    """Use the full values of a study file instead of its laptop values."""
    site: str | None = None
    """Site profile, by name or file; None: the profile that matches this host's name, or else local."""
    nodes: tuple[int, ...] | None = None
    """Numbers of nodes; with several, each is measured in its own jobs."""
    ranks_per_node: tuple[int, ...] | None = None
    """Numbers of ranks per node; with several, each is measured in its own jobs."""
    account: str | None = None
    """Account or project to charge."""
    queue: str | None = None
    """Queue or partition."""
    walltime: units.Walltime | None = None
    """Time limit of a job."""
    job_options: tuple[str, ...] = ()
    """Options for the batch system, verbatim."""
    data: Path | None = None
    """Folder for datasets, on the file system under test."""
    ab: tuple[Path, Path] | None = None
    """Two folders for datasets, on the file systems to be compared; replaces `data`."""
    runs: Path = Path("dlio-runs")
    """Folder in which each job gets its directory."""
    archive: Path | None = None
    """Folder for archives; None: the folder "archive" in `runs`."""
    overrides: tuple[str, ...] = ()
    """Keys to change, each KEY=VALUE. A key that begins with "site." belongs to the site profile, others to the
    workload.
    """
    sweeps: tuple[str, ...] = ()
    """Keys to vary, each KEY=A,B,... with the values to measure."""
    zipped: bool = False
    """Measure the first values of all sweeps together, then the second values, and so on, instead of every combination.
    """
    weak: bool = False
    """Weak scaling: with several numbers of ranks, each rank reads the same amount at every number."""
    seed: int | None = None
    """Seed of the order of runs; None: a random seed."""
    repeat: int | None = None
    """Measured runs of each point; None: the study file's number; without a study file 1, or 4 with `ab`."""
    warmup: int | None = None
    """Warm-up runs of each dataset before the measurements; None: the study file's number; without a study file 0."""
    dataset_size: int | None = None
    """Bytes to which the dataset is resized, to within one file; None: the size in the workload."""
    generate: Generate = "auto"
    """When datasets are generated: auto (in the jobs that need them), separate (in a job before), only (generate and
    measure nothing) or never.
    """
    darshan: bool | None = None
    """Run with Darshan; None: run with it if the site names a libdarshan."""
    tf_profile: bool = False
    """With reader.loader tensorflow, keep the profile that TensorFlow records on ranks 0 to 7 in the first 30 s of each
    run.
    """
