"""JSON documents about files: workloads, sites, datasets, archives, and what commands write or remove."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from dlio_hpc.documents.versioned import Versioned

DatasetState = Literal["complete", "unfinished", "generating"]


class ListedWorkload(Struct, frozen=True):
    """A workload."""

    name: str
    """Name of the workload."""
    format: str
    """Format of the dataset."""
    dataset_bytes: int
    """Bytes of the samples before compression."""
    description: str
    """Description."""
    file: str
    """Path of the YAML file."""


class WorkloadsDocument(Versioned, frozen=True):
    """The workloads that can be selected by name."""

    workloads: list[ListedWorkload]
    """The workloads, sorted by name."""


class ListedSite(Struct, frozen=True):
    """A site profile."""

    name: str
    """Name of the profile."""
    scheduler: str
    """Batch system."""
    description: str
    """Description."""
    file: str
    """Path of the YAML file."""


class SitesDocument(Versioned, frozen=True):
    """The site profiles that can be selected by name."""

    sites: list[ListedSite]
    """The profiles, sorted by name."""


class NewSiteDocument(Versioned, frozen=True):
    """A profile that `sites new` made."""

    name: str
    """Name of the profile."""
    file: str | None
    """Path of the file that was written; null: no file was written, because of --to -."""
    yaml: str
    """Text of the profile."""


class ListedDataset(Struct, frozen=True):
    """A dataset in the data directory. The fields from `format` on are absent if the generation was killed before it
    recorded them.
    """

    name: str
    """Name of the folder."""
    path: str
    """Path of the folder."""
    state: DatasetState
    """unfinished: generation did not complete; generating: a job is writing it."""
    made: str
    """Time of the last change (UTC) of the fingerprint file or, if there is no such file, of the folder."""
    format: str | UnsetType = UNSET
    """Format of the files."""
    compression: str | UnsetType = UNSET
    """Compression of the samples."""
    files: int | UnsetType = UNSET
    """Number of files."""
    samples_per_file: int | UnsetType = UNSET
    """Number of samples per file."""
    bytes: int | UnsetType = UNSET
    """Bytes of samples and auxiliary files before compression."""
    fingerprint: str | UnsetType = UNSET
    """Fingerprint of the dataset."""


class DatasetsDocument(Versioned, frozen=True):
    """The datasets in the data directory."""

    data: str
    """Data directory."""
    datasets: list[ListedDataset]
    """The datasets."""


class FileFault(Struct, frozen=True):
    """A fault of a dataset."""

    file: str
    """Name of the faulty file in the folder. If the fault concerns the whole dataset, this is the name of the folder.
    """
    fault: str
    """Description of the fault."""


class VerifiedDataset(Struct, frozen=True):
    """A dataset that was verified."""

    name: str
    """Name of the folder."""
    path: str
    """Path of the folder."""
    files: int
    """Number of files checked."""
    bytes: int
    """Bytes of these files on the file system."""
    faults: tuple[FileFault, ...]
    """Faults; empty: the dataset is intact."""
    earlier_files: int = 0
    """Number of these files that only an interrupted verification checked, at most a day before: they are unchanged."""
    began: str | None = None
    """Time (UTC) at which that verification began; `null`: all files were checked now."""


class DatasetsVerifyDocument(Versioned, frozen=True):
    """Datasets that were verified."""

    datasets: list[VerifiedDataset]
    """The datasets."""


class RemovedDataset(Struct, frozen=True):
    """A dataset that was removed, or would be removed."""

    path: str
    """Path of the folder."""
    files: int
    """Number of files."""
    bytes: int
    """Bytes of these files."""


class DatasetsRemoveDocument(Versioned, frozen=True):
    """Datasets that were removed."""

    datasets: list[RemovedDataset]
    """The datasets."""
    is_dry_run: bool
    """True if nothing was removed because of --dry-run."""


class VerifiedArchive(Struct, frozen=True):
    """An archive that was verified."""

    archive: str
    """Path of the archive."""
    faults: list[str]
    """Faults; empty: the archive is intact."""


class ArchiveVerifyDocument(Versioned, frozen=True):
    """Archives that were verified."""

    archives: list[VerifiedArchive]
    """The archives. An archive that cannot be read is absent; stderr has the reason."""


class ArchiveMember(Struct, frozen=True):
    """A member of an archive."""

    name: str
    """Name of the member."""
    bytes: int
    """Size of the member."""


class ListedArchive(Struct, frozen=True):
    """An archive and its members."""

    archive: str
    """Path of the archive."""
    members: list[ArchiveMember]
    """The members, in the order of the archive."""


class ArchiveListDocument(Versioned, frozen=True):
    """Members of archives."""

    archives: list[ListedArchive]
    """The archives."""


class ExtractedArchive(Struct, frozen=True):
    """An archive that was extracted."""

    archive: str
    """Path of the archive."""
    directory: str
    """Folder of the job."""


class ArchiveExtractDocument(Versioned, frozen=True):
    """Archives that were extracted."""

    archives: list[ExtractedArchive]
    """The archives."""


class ForeignFile(Struct, frozen=True):
    """A file of another user that prevents sharing the folder."""

    user: str
    """Owner of the file."""
    command: str
    """Command that the owner must run."""


class ArchiveShareDocument(Versioned, frozen=True):
    """A folder of archives that was shared with a group."""

    changed: list[str]
    """Files and folders whose group or permissions were changed."""
    others: list[ForeignFile]
    """Files of other users whose group or permissions need a change."""
    refused: list[str]
    """Links, and files that may have another name outside the folder. Their group and permissions were not changed."""


class ArchivePruneDocument(Versioned, frozen=True):
    """Archives that were removed."""

    removed: list[str]
    """Paths of the archives."""
    bytes: int
    """Bytes of the archives."""
    kept: dict[str, int]
    """Number of archives that are kept, by the reason for keeping them."""
    is_dry_run: bool
    """True if nothing was removed because of --dry-run."""


class InstalledDocument(Versioned, frozen=True):
    """Files that `install-site` wrote."""

    prefix: str
    """Prefix: the folder in which the files were written."""
    files: list[str]
    """Paths of the files."""


class SiteReportDocument(Versioned, frozen=True):
    """Pages of a web site."""

    directory: str
    """Folder of the site."""
    written: list[str]
    """Pages that were written, relative to the folder."""
    unchanged: int
    """Number of pages that were already up to date."""


class RemainsDocument(Struct, frozen=True):
    """A file or directory that a killed command left."""

    path: str
    """Path."""
    what: str
    """Description, such as a half-written job.json."""


class CleanDocument(Versioned, frozen=True):
    """Remains of killed commands."""

    removed: list[RemainsDocument]
    """What was removed; with --dry-run, what would be removed."""
    is_dry_run: bool
    """True if nothing was removed because of --dry-run."""
    left_out: list[str]
    """Errors for the jobs whose state the batch system does not tell."""


class MlperfReportDocument(Versioned, frozen=True):
    """Jobs that were written in the layout of MLPerf Storage."""

    headline: str
    """Sentence that says what was written, and that the report is not a submission."""
    directory: str
    """Folder of the report."""
    folders: dict[str, str]
    """Name of each run, by the path of its folder relative to `directory`."""
    missing: list[str]
    """Data that the files lack, and the reasons."""
    cautions: list[str]
    """Runs that do not measure the storage, or may not measure it, with the reasons."""


class DoctorDocument(Struct, frozen=True):
    """Facts about an installation, without secrets. If a section cannot be made, its only key is `unknown`, with the
    reason.
    """

    program: dict[str, str] = field(name="dlio-hpc")
    """Version, folders, Python, system, time."""
    packages: dict[str, str]
    """Versions of Python packages."""
    site: dict[str, str]
    """Site profile and batch system."""
    mpi: dict[str, str] = field(name="MPI")
    """MPI library and launcher."""
    file_systems: dict[str, str] = field(name="file systems")
    """File systems of datasets and jobs."""
    defaults: dict[str, str]
    """Options that are set in files defaults.yaml."""
    environment: dict[str, str]
    """Environment variables of dlio-hpc and MPI."""
    failed_jobs: dict[str, str] = field(name="jobs with errors")
    """Errors of the newest jobs that have an error."""
    bug_reports: dict[str, str] = field(name="bug reports")
    """Last lines of the newest bug reports."""
