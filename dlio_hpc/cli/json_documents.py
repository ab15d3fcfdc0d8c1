"""The JSON documents of commands: the structs of the documents that a command prints with --json.

Each command is in one of the two tables. A command of a group has the name of the group in front, such as "baseline
list". The group `sites` is itself a command, too.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msgspec import Struct

# Structs that a verb prints one of, as MODULE.STRUCT in dlio_hpc.
DOCUMENTS: dict[str, tuple[str, ...]] = {
    "submit": (
        "documents.jobs.JobsDocument", "documents.studies.StudyDocument", "documents.planned.DryRunDocument",
    ),
    "check": ("documents.planned.CheckDocument",),
    "estimate": ("documents.planned.EstimateDocument",),
    "datasize": ("documents.planned.DatasizeDocument",),
    "status": ("documents.jobs.StatusDocument",),
    "wait": ("documents.jobs.JobsDocument", "documents.studies.StudyDocument"),
    "top": ("documents.jobs.LiveDocument",),
    "cancel": ("documents.jobs.CancelDocument",),
    "collect": ("documents.jobs.CollectDocument",),
    "report": ("documents.jobs.JobsDocument", "documents.studies.StudyDocument"),
    "compare": ("documents.judgements.CompareDocument",),
    "accept": ("documents.judgements.AcceptDocument",),
    "baseline accept": ("documents.judgements.BaselineAcceptDocument",),
    "baseline list": ("documents.judgements.BaselineListDocument",),
    "baseline show": ("documents.judgements.BaselineShowDocument",),
    "baseline retire": ("documents.judgements.BaselineRetireDocument",),
    "history": ("documents.judgements.HistoryDocument",),
    "mlperf-report": ("documents.files.MlperfReportDocument",),
    "darshan": ("documents.logs.DarshanDocument", "programs.documents.DarshanSummaryDocument"),
    "characterize": ("programs.documents.CharacterizeDocument",),
    "similarity": ("programs.documents.SimilarityDocument", "programs.documents.MatrixDocument"),
    "import": ("documents.imported.ImportDocument",),
    "workloads": ("documents.files.WorkloadsDocument", "config.workload.Workload"),
    "sites": ("documents.files.SitesDocument", "config.site.Site"),
    "sites new": ("documents.files.NewSiteDocument",),
    "datasets list": ("documents.files.DatasetsDocument",),
    "datasets verify": ("documents.files.DatasetsVerifyDocument",),
    "datasets remove": ("documents.files.DatasetsRemoveDocument",),
    "archive verify": ("documents.files.ArchiveVerifyDocument",),
    "archive list": ("documents.files.ArchiveListDocument",),
    "archive extract": ("documents.files.ArchiveExtractDocument",),
    "archive share": ("documents.files.ArchiveShareDocument",),
    "archive prune": ("documents.files.ArchivePruneDocument",),
    "install-site": ("documents.files.InstalledDocument",),
    "site-report": ("documents.files.SiteReportDocument",),
    "clean": ("documents.files.CleanDocument",),
    "doctor": ("documents.files.DoctorDocument",),
}  # fmt: skip
# Verbs without --json, each with the reason.
WITHOUT: dict[str, str] = {
    "schema": "prints JSON Schema, or text for a terminal",
    "completion": "prints a script for a shell",
    "record": "prints what the program prints",
}
FAILURE = "documents.versioned.FailureDocument"


def structs_of(verb: str) -> "list[type[Struct]]":
    """Return the structs of the documents that a command may print. verb: name of the command, a key of DOCUMENTS."""
    return [struct(name) for name in DOCUMENTS[verb]]


def struct(name: str) -> "type[Struct]":
    """Return a struct by its module and name, as a dotted path relative to dlio_hpc."""
    module, _, kind = name.rpartition(".")
    made: type[Struct] = getattr(importlib.import_module(f"dlio_hpc.{module}"), kind)
    return made
