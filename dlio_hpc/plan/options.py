"""Options of commands that plan jobs: dlio-submit, dlio-hpc estimate and dlio-hpc check."""

from pathlib import Path

from msgspec import Struct

from dlio_hpc import units
from dlio_hpc.plan.plan import Generate


class Options(Struct, frozen=True, kw_only=True):
    """Options of a study or of a single job. None: the value of the study file, of the site or of the tool."""

    workload: str | None = None
    """Workload that ships or YAML file; a suite's name works, too. One of workload, study and suite is given."""
    study: str | None = None
    """Study that ships or YAML file."""
    suite: str | None = None
    """Suite that ships or YAML file: a study with a verdict."""
    full: bool = False
    """Take the sizes of a study file for a large machine, not its sizes for a laptop."""
    site: str | None = None
    """Site profile, by name or file; None: the profile for this host's name, else local."""
    nodes: tuple[int, ...] | None = None
    """Numbers of nodes; several: jobs for each."""
    ranks_per_node: tuple[int, ...] | None = None
    """Numbers of ranks a node; several: jobs for each."""
    account: str | None = None
    """Account or project to charge."""
    queue: str | None = None
    """Queue or partition."""
    walltime: units.Walltime | None = None
    """Time limit of a job."""
    job_options: tuple[str, ...] = ()
    """Options for the batch system, verbatim."""
    data: Path | None = None
    """Folder for datasets: the file system under test."""
    ab: tuple[Path, Path] | None = None
    """Folders on two file systems that are compared, instead of data."""
    runs: Path = Path("dlio-runs")
    """Folder for the directories of jobs."""
    archive: Path | None = None
    """Folder for archives; None: archive in runs."""
    overrides: tuple[str, ...] = ()
    """KEY=VALUE: keys of the workload with other values; keys of the site begin with site."""
    sweeps: tuple[str, ...] = ()
    """KEY=A,B,...: values of a key that are measured."""
    zipped: bool = False
    """Take the values of sweeps side by side, not in every combination."""
    weak: bool = False
    """With several numbers of ranks, let each rank read the same amount."""
    seed: int | None = None
    """Seed of the order of runs; None: drawn."""
    repeat: int | None = None
    """Measured runs of each point; None: 1, with ab 4, or the study file's."""
    warmup: int | None = None
    """Runs before the measured ones, of each dataset; None: 0, or the study file's."""
    dataset_size: int | None = None
    """Bytes of the dataset, to within one file; None: the workload's."""
    generate: Generate = "auto"
    """When datasets are generated: auto, separate, only or never."""
    darshan: bool | None = None
    """Run under Darshan; None: where the site names a libdarshan."""
    tf_profile: bool = False
    """With loader tensorflow, keep what its profiler records of ranks 0 to 7 in the first 30 s of each run."""
