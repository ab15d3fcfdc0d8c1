"""dlio-hpc as an application of Ramble: each experiment is a job of dlio-hpc, with its metrics as figures of merit.

    ramble repo add -t applications PREFIX/share/ramble
    ramble workspace create -c PREFIX/share/ramble/ramble.yaml storage
    ramble -w storage workspace setup && ramble -w storage on && ramble -w storage workspace analyze

dlio-submit submits the job itself, so that experiments run where Ramble runs: batch_submit is '{execute_experiment}'.
"""

from ramble.appkit import *  # noqa: F403 - as all definitions of Ramble do


class DlioHpc(ExecutableApplication):  # noqa: F405
    """Measure how a storage system serves deep learning."""

    name = "dlio-hpc"

    tags("storage", "IO", "deep-learning")  # noqa: F405

    executable(  # noqa: F405
        "submit",
        "dlio-submit {dlio_workload} -s {dlio_site} -N {n_nodes} --ppn {processes_per_node} -d {dlio_data} "
        "-o {experiment_run_dir}/dlio-runs {dlio_options} --wait --json --quiet",
        use_mpi=False,
    )
    executable(  # noqa: F405
        "figures", "dlio-hpc history --archive {experiment_run_dir}/dlio-runs/archive --xdmod -", use_mpi=False
    )
    workload("job", executables=["submit", "figures"])  # noqa: F405

    for variable, default, description in (
        ("dlio_workload", "demo", "Workload of dlio-hpc: a name, or a YAML file"),
        ("dlio_site", "local", "Site profile: a name, or a YAML file"),
        ("dlio_data", "{experiment_run_dir}/dlio-data", "Folder on the file system under test"),
        ("dlio_options", "-S reader.direct=true", "More options of dlio-submit, such as -A project --repeat 3"),
    ):
        workload_variable(variable, default=default, description=description, workloads=["job"])  # noqa: F405

    for title, pattern, unit in (
        ("Samples/s", r"[\d.e+-]+", "samples/s"),
        ("Read bandwidth", r"[\d.e+-]+", "MB/s"),
        ("AU", r"[\d.e+-]+", ""),
        ("Time", r"[\d.e+-]+", "s"),
        ("I/O time", r"[\d.e+-]+", "s"),
        ("From Storage", r"\w+", ""),  # no: bytes came from memory, and the rates are not those of the storage
    ):
        figure_of_merit(  # noqa: F405
            title,
            log_file="{log_file}",
            fom_regex=rf"{title}: (?P<value>{pattern})",
            group_name="value",
            units=unit,
        )

    success_criteria("completed", mode="string", match=r"Exit Code: 0$", file="{log_file}")  # noqa: F405
