"""The options of commands that plan jobs: dlio-submit, dlio-hpc estimate and dlio-hpc check."""

from pathlib import Path

from msgspec import Struct

from dlio_hpc.base import units
from dlio_hpc.plan.plan import Generate

# Value of --users that searches for the number of users.
AUTO = "auto"


class Options(Struct, frozen=True, kw_only=True):
    """Options of a submission. If an option is None, the first value that is set applies, in this order: the value of
    the study file, the value of the site profile, the built-in default.
    """

    workload: str | None = None
    """Name of a shipped workload, or path of its YAML file. The name of a shipped suite selects that suite. Exactly one
    of the fields workload, study, suite and mix is set.
    """
    study: str | None = None
    """Name of a shipped study, or path of a YAML file."""
    suite: str | None = None
    """Name of a shipped suite, or path of a YAML file. A suite is a study with a verdict."""
    mix: tuple[str, ...] = ()
    """Loads that run at the same time, each in the form WORKLOAD=SHARE with its share of the ranks. They replace
    `workload`.
    """
    mix_until: str = "last"
    """End of a run with several loads: first, last, or a time such as 60s; see MixKeys."""
    mix_pairs: bool = False
    """Also measure each pair of loads."""
    users: str | None = None
    """Number of users of an inference workload, or "auto" to search for the largest number in time; None: the number in
    the workload.
    """
    ttft: units.Seconds | None = None
    """Time to the first token that users of an inference workload accept; None: the time in the workload."""
    full: bool = False
    """Use the full values of a study file instead of its smaller values for laptops."""
    site: str | None = None
    """Name or file of a site profile; None: the profile that matches the name of this host or, if none matches, the
    profile local.
    """
    nodes: tuple[int, ...] | None = None
    """Numbers of nodes. Each number is measured in jobs of its own."""
    ranks_per_node: tuple[int, ...] | None = None
    """Numbers of ranks per node. Each number is measured in jobs of its own."""
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
    existing: str | None = None
    """Pattern of existing files to read, relative to `data`, such as train/*.tfrecord; None: the dataset is generated.
    """
    ab: tuple[Path, Path] | None = None
    """Two folders for datasets, on the file systems to be compared; replaces `data`."""
    runs: Path = Path("dlio-runs")
    """Folder that contains the directories of jobs."""
    archive: Path | None = None
    """Folder for archives; None: the folder "archive" in `runs`."""
    overrides: tuple[str, ...] = ()
    """Keys to change, each in the form KEY=VALUE. A key that begins with "site." belongs to the site profile; other
    keys belong to the workload.
    """
    sweeps: tuple[str, ...] = ()
    """Keys to vary, each in the form KEY=A,B,... with the values to measure."""
    zipped: bool = False
    """Measure the first values of all sweeps together, then the second values, and so on, instead of every combination.
    """
    weak: bool = False
    """Weak scaling: each rank reads the same amount at every number of ranks."""
    seed: int | None = None
    """Seed of the order of runs; None: a random seed."""
    repeat: int | None = None
    """Number of measured runs of each point; None: the number in the study file; without a study file 1, or 4 with
    `ab`.
    """
    nights: int = 1
    """Number of nights on which the study is measured, each time with `repeat` measured runs of each point."""
    every: units.Walltime | None = None
    """Time from the start of a night to the start of the next one; None: 24 h."""
    warmup: int | None = None
    """Number of warm-up runs of each dataset before the measurements; None: the number in the study file; without a
    study file 0.
    """
    dataset_size: int | None = None
    """Size in bytes to which the dataset is changed. The dataset may be smaller than this, but by less than the size of
    one file. None: the size in the workload.
    """
    generate: Generate = "auto"
    """When datasets are generated. auto: in the jobs that need them. separate: in a job of its own, which runs
    first. only: generate datasets and measure nothing. never: do not generate datasets.
    """
    darshan: bool | None = None
    """Whether to run with Darshan; None: run with Darshan if the site profile names a libdarshan."""
    tf_profile: bool = False
    """With reader.loader tensorflow, keep the profile that TensorFlow records on ranks 0 to 7 in the first 30 s of each
    run.
    """
