"""The commands of dlio-hpc in groups, each with its module, a summary and an example."""

from typing import NamedTuple


class Verb(NamedTuple):
    """A command of dlio-hpc. module: name of its module in dlio_hpc.cli. summary: line in the list of commands, at most
    60 characters. example: a command line.
    """

    module: str
    summary: str
    example: str


GROUPS: dict[str, dict[str, Verb]] = {
    "Run jobs": {
        "submit": Verb(
            "submit", "Submit a job, a study or a suite (also dlio-submit)",
            "dlio-hpc submit unet3d_h100 -s perlmutter -N 4 -A PROJECT -t 30m -d /scratch/dlio --wait",
        ),
        "check": Verb("check", "Find what would make a job fail", "dlio-hpc check -s perlmutter -d /scratch/dlio"),
        "estimate": Verb(
            "cost", "Estimate node-hours, bytes and space", "dlio-hpc estimate --study fig11 -s theta --full"
        ),
        "datasize": Verb(
            "datasize", "Size of the dataset that MLPerf Storage requires",
            "dlio-hpc datasize unet3d_h100 -N 8 --ppn 8 --memory 512GiB",
        ),
        "status": Verb("jobs", "State of jobs", "dlio-hpc status"),
        "wait": Verb("jobs", "Watch jobs to their end, collect, report", "dlio-hpc wait JOB"),
        "top": Verb("top", "Show jobs while they run", "dlio-hpc top"),
        "cancel": Verb("jobs", "End jobs", "dlio-hpc cancel --all"),
        "collect": Verb("jobs", "Archive jobs that have ended", "dlio-hpc collect"),
    },
    "Judge results": {
        "report": Verb("report", "Measurements and I/O of jobs, or of a study", "dlio-hpc report JOB --html job.html"),
        "compare": Verb("compare", "Regression against the baseline", "dlio-hpc compare JOB --tolerance 5%"),
        "accept": Verb(
            "accept", "Acceptance by the criteria in a file", "dlio-hpc accept STUDY --criteria acceptance.yaml"
        ),
        "baseline": Verb(
            "baseline", "Accept, list and retire baselines", 'dlio-hpc baseline accept JOB --message "quiet night"'
        ),
        "history": Verb("history", "Earlier jobs, their trends and changes", "dlio-hpc history --since 2026-11-01"),
        "site-report": Verb(
            "site_report", "Web site of all jobs, with a dashboard", "dlio-hpc site-report /var/www/dlio-hpc"
        ),
        "mlperf-report": Verb(
            "mlperf_report", "Jobs in the layout of MLPerf Storage",
            "dlio-hpc mlperf-report results STUDY --edition v3 --division closed --submitter site --system lustre",
        ),
    },
    "Understand programs": {
        "darshan": Verb("darshan", "Analyse Darshan logs of any program", "dlio-hpc darshan app.darshan"),
        "record": Verb("record", "Record how a program uses its libraries", "dlio-hpc record -- python train.py"),
        "characterize": Verb(
            "characterize", "Derive a workload from a recording or Darshan logs",
            "dlio-hpc characterize app.darshan -o mine.yaml",
        ),
        "similarity": Verb("similarity", "Compare the I/O of two programs", "dlio-hpc similarity JOB app.darshan"),
        "import": Verb(
            "import_workload", "Turn a workload of dlio_benchmark into one of dlio-hpc",
            "dlio-hpc import unet3d_h100.yaml -o mine.yaml",
        ),
    },
    "Manage files": {
        "workloads": Verb("catalogue", "List or print workloads", "dlio-hpc workloads unet3d_h100"),
        "sites": Verb("catalogue", "List, print or make site profiles", "dlio-hpc sites new mycluster"),
        "schema": Verb("schema", "Keys of YAML files, as text or JSON Schema", "dlio-hpc schema workload --text"),
        "datasets": Verb("datasets", "List, verify and remove datasets", "dlio-hpc datasets list -d /scratch/dlio"),
        "archive": Verb(
            "archive", "Verify, list, extract, share and prune archives", "dlio-hpc archive verify JOB.tar.zst"
        ),
        "clean": Verb("clean", "Remove what killed commands left", "dlio-hpc clean"),
        "completion": Verb("completion", "Script that completes commands in a shell", "dlio-hpc completion bash"),
        "install-site": Verb(
            "install_site", "Commands, man pages, completion and module file",
            "dlio-hpc install-site /sw/dlio-hpc --env DLIO_HPC_SITE=mycluster",
        ),
        "doctor": Verb("doctor", "Facts that a maintainer needs for help", "dlio-hpc doctor -s perlmutter"),
    },
}  # fmt: skip
VERBS = {name: verb for group in GROUPS.values() for name, verb in group.items()}

_REMOVAL = ("remove", "prune", "retire", "cancel")
_MEANINGS: dict[tuple[str, ...], str] = {
    _REMOVAL: "rm del delete erase drop",
    ("list", "status"): "ls dir",
    ("status",): "list jobs ps queue squeue qstat state stat",
    ("verify",): "check",
    ("check", "verify"): "validate test lint diagnose",
    ("extract",): "unpack untar unzip",
    ("accept",): "add set approve",
    ("show", "report"): "get show info cat view print display describe inspect open",
    ("report",): "result results summary log logs output plot graph chart figure analyze analyse stats",
    ("cancel",): "scancel qdel kill stop abort terminate end",
    ("submit",): "run start launch exec execute sbatch qsub bench benchmark resubmit",
    ("compare",): "diff cmp regression",
    ("history",): "trend trends sacct export csv openmetrics prometheus",
    ("top",): "watch monitor follow tail progress",
    ("estimate",): "cost price plan",
    ("sites",): "site profile profiles",
    ("workloads",): "workload models",
    ("datasets",): "dataset data",
    ("doctor",): "debug bug",
    ("clean",): "cleanup purge gc",
}
# Commands of similar programs, and what they are called here: the first one that the group has.
ELSEWHERE = {word: verbs for verbs, others in _MEANINGS.items() for word in others.split()}
