"""The two sets of tests. `make test` runs the everyday tests: all that run within the process of pytest, and those in
PROMISES. `make test-all` runs all tests.
"""

import os
import sys
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

# Marker of a test, by a fixture that it uses.
_FIXTURES = {
    "job": (
        "small", "measured", "tiny", "darshan", "standin", "done", "copy", "real", "early", "met", "wheel",
    ),
    "cluster": ("slurm", "on_slurm", "on_pbs", "on_flux", "theta", "system", "real_flux"),
    "strace": ("_strace",),
}  # fmt: skip
# Parameters of a test that start a framework, which takes seconds.
_FRAMEWORKS = {"tensorflow", "pytorch"}
# Programs that take long: a test that runs one must have a marker. Shells run the scripts of jobs.
_PROGRAMS = {"mpiexec", "chromium", "chromium-browser", "google-chrome", "strace", "slurmctld"}
_SHELLS = {"bash", "timeout"}
_HEAVY = {"job", "cluster", "framework", "strace", "browser"}

# Files that start a Slurm.
_SLURM = ("test_slurm_job.py", "test_conformance.py")

# The tests with jobs that are everyday tests, by what they promise. A name without parameters is all of its cases.
PROMISES: dict[str, tuple[str, ...]] = {
    "the contract: job directory, result.json, archive": (
        "test_local_job.py::test_everything_the_contract_promises_lies_in_the_directory",
        "test_local_job.py::test_the_timeline_holds_every_step_of_every_rank",
        "test_local_job.py::test_the_script_can_be_run_again_by_hand",
        "test_local_job.py::test_names_and_paths_that_bite",
        "test_packaging.py::test_a_wheel_put_elsewhere",
    ),
    "every sample and byte is read once and counted": (
        "test_local_job.py::test_every_sample_and_byte_is_read_once_an_epoch[30-4]",
        "test_local_job.py::test_every_sample_and_byte_is_read_once_an_epoch[1-3]",
        "test_local_job.py::test_the_dataset_is_what_numpy_reads_and_is_made_once",
        "test_core_job.py::test_each_way_to_read_runs_as_a_job[dataset.format=tfrecord]",
        "test_core_job.py::test_each_way_to_read_runs_as_a_job[dataset.format=csv,reader.mode=framework]",
        "test_core_job.py::test_each_way_to_read_runs_as_a_job[reader.loader=pytorch]",
        "test_core_job.py::test_each_way_to_read_runs_as_a_job[reader.loader=tensorflow]",
        "test_core_job.py::test_one_file_is_read_collectively[hdf5-0-2]",
        "test_counts.py::test_reads_and_bytes_are_those_of_the_datasets_files[dataset.format=hdf5 dataset.chunk=4KiB]",
        "test_streams.py::test_ranks_together_read_the_dataset_once[native]",
        "test_existing_job.py::test_a_job_reads_images_and_leaves_them_alone",
        "test_verification.py::test_a_run_with_a_wrong_bit_is_invalid",
    ),
    "cached is called cached": (
        "test_core_job.py::test_reading_reaches_the_storage[true-reader.direct=true]",
        "test_acceptance.py::test_what_was_just_written_is_cached_unless_it_is_passed_or_dropped",
    ),
    "checkpoints and auxiliary files": (
        "test_core_job.py::test_checkpoints_are_counted_over_the_run",
        "test_core_job.py::test_side_files_are_counted_apart",
        "test_checkpoint_modes.py::test_checkpoints_in_the_background[torch-asynchronous: true-2]",
    ),
    "evaluation passes are measured apart": ("test_evaluation.py::test_passes_are_measured_apart[native]",),
    "jobs end as they are said to end": (
        "test_local_job.py::test_a_job_stops_cleanly_before_its_time_limit",
        "test_local_job.py::test_a_job_can_be_cancelled",
        "test_local_job.py::test_a_job_that_was_killed_outright_is_lost",
        "test_local_job.py::test_a_rank_that_fails_ends_all_and_its_outputs_are_kept",
        "test_local_job.py::test_a_second_signal_does_not_lose_the_exit_status",
        "test_local_job.py::test_a_full_file_system_is_refused_before_writing",
        "test_local_job.py::test_an_interrupt_ends_the_watching_and_not_the_job",
        "test_faults.py::test_a_bug_in_the_job_is_the_jobs_exit_code",
        "test_faults.py::test_a_run_without_a_result_shows_the_last_lines_of_job_err",
        "test_core_job.py::test_a_disk_that_fills_up_ends_the_job[npz]",
        "test_interruptions.py::test_a_full_disk_of_archives_is_told_with_a_command",
        "test_jobscript.py::test_results_of_an_earlier_attempt_are_kept_apart",
    ),
    "it is installed as sites install software": (
        "test_packaging.py::test_a_moved_environment_works",
        "test_junit.py::test_submit_writes_what_became_of_its_runs",
    ),
    "ranks run in a container image": (
        "test_container.py::test_ranks_run_in_an_image[apptainer]",
        "test_container.py::test_an_image_of_another_version_ends_the_job_at_its_start[podman-hpc]",
    ),
    "files for JUBE, Ramble and buildtest": (
        "test_benchmark_tools.py::test_a_file_runs_a_job_and_reads_its_metrics[_ramble]",
    ),
    "each batch system": (
        "test_conformance.py::test_a_job_on_two_nodes",
        "test_conformance.py::test_a_running_job_is_cancelled",
        "test_slurm_job.py::test_the_preflight_on_slurm",
        "test_pbs_job.py::test_a_server_without_history_knows_live_jobs",
    ),
    "Darshan and Lustre": (
        "test_darshan_job.py::test_darshan_the_core_and_the_plan_count_the_same_bytes[stand-in]",
        "test_darshan_job.py::test_a_library_that_is_not_there_is_left_out",
        "test_lustre.py::test_a_layout_that_is_not_as_asked_makes_the_job_invalid",
        "test_characterize.py::test_check_runs_it_here_and_compares[mpi4_npz-0.95]",
    ),
    "studies, suites, acceptance": (
        "test_study_job.py::test_a_study_file_of_the_users_own",
        "test_study_job.py::test_a_submission_killed_between_two_jobs_is_resumed",
        "test_suites.py::test_night_after_night",
        "test_acceptance.py::test_a_real_job_from_its_submission_to_its_acceptance",
    ),
    "pages open in a browser": (
        "test_pictures.py::test_a_browser_shows_the_page_without_a_complaint_or_a_request",
        "test_banners.py::test_no_page_breaks_a_word_or_is_wider_than_the_window[True-390]",
        "test_site_report.py::test_a_web_server_shows_the_site_to_every_reader[390-dark]",
    ),
    "--json prints one document that follows its schema": (
        "test_json_output.py::test_a_verb_prints_the_document_of_its_schema",
        "test_json_output.py::test_a_baseline_is_accepted_and_retired",
    ),
    "the Python API": ("test_api.py::test_readmes_example_runs_a_job",),
    "a run is compared with a plain loop": ("test_storage_probe.py::test_a_job_compares_its_run_with_a_plain_loop",),
    "every shipped workload": ("test_shipped_workloads.py::test_each_runs_here_shrunk[demo]",),
}

_started: list[str] = []


def mark(items: list[pytest.Item]) -> None:
    """Add the markers of the fixtures and parameters to tests, and `everyday` to tests that `make test` runs."""
    listed = {name for names in PROMISES.values() for name in names}
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        for marker, names in _FIXTURES.items():
            if not set(names).isdisjoint(fixtures):
                item.add_marker(marker)
        parameters = getattr(getattr(item, "callspec", None), "params", {}).values()
        if not _FRAMEWORKS.isdisjoint(value for value in parameters if isinstance(value, str)):
            item.add_marker("framework")
        name = f"{item.path.name}::{item.nodeid.partition('::')[2]}"
        if not is_heavy(item) or not listed.isdisjoint((name, name.partition("[")[0])):
            item.add_marker("everyday")


class OneSlurm(LoadFileScheduling):  # type: ignore[misc]
    """Scheduling of tests on workers by file. Both files that start a Slurm run on one worker, one after the other."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "slurm" if file.endswith(_SLURM) else file

    def _assign_work_unit(self, node: Any) -> None:
        """Give a worker files until it has two tests to run, because it runs a test only when it knows the next one.
        pytest-xdist gives a worker that replaces another one a single file, and waits without an end if the file has no
        tests left.
        """
        super()._assign_work_unit(node)
        while self.workqueue and self._pending_of(self.assigned_work[node]) < 2:
            super()._assign_work_unit(node)


def is_heavy(item: Any) -> bool:
    return any(marker.name in _HEAVY for marker in item.iter_markers())


def started() -> list[str]:
    """Return the commands that were started since the last call and that only tests with a marker may start."""
    commands = list(_started)
    _started.clear()
    return commands


def watch() -> None:
    """Record the commands that this process starts."""
    sys.addaudithook(_record)


def _record(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in {"os.posix_spawn", "subprocess.Popen"} or isinstance(arguments[1], (str, bytes, os.PathLike)):
        return
    command = [os.fsdecode(word) for word in arguments[1]]
    program = os.path.basename(command[0])
    runs_script = program in _SHELLS and any(word.endswith("job.sh") for word in command)
    if (program in _PROGRAMS or runs_script) and "--version" not in command:
        _started.append(" ".join(command).encode(errors="backslashreplace").decode())
