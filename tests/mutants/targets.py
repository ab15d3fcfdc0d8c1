"""Modules that decide figures and verdicts, and the mutants of them that change nothing."""

TARGETS = (
    "analysis/disturbance_check", "analysis/storage_check", "analysis/study/best_setting",
    "analysis/study/file_system_pairs", "analysis/study/main_effects", "analysis/study/ratios",
    "analysis/study/replicates", "analysis/study/scaling", "analysis/study/stragglers", "core/cache_accounting",
    "core/checkpoint", "core/distributions", "core/evaluation", "core/io_counters", "core/merge",
    "core/read_activity", "core/storage_probe", "core/train", "darshan/clock_alignment", "darshan/log_faults",
    "darshan/run_check", "dataset/checkpoint_files", "dataset/planned_bytes", "dataset/rank_shares",
    "dataset/sample_layout", "dataset/sample_order", "records/job_outcome", "results/intervals", "results/metrics",
    "verdict/acceptance", "verdict/baseline_comparison", "verdict/change_detection", "verdict/checkpoint_criteria",
    "verdict/division_criteria", "verdict/history_entry", "verdict/judged_jobs", "verdict/measured_noise",
    "verdict/newest_jobs", "verdict/night_intervals", "verdict/night_series", "verdict/outlying_runs",
    "verdict/performance_criteria", "verdict/procedure_criteria", "verdict/regression", "verdict/run_groups",
    "verdict/settings_digest", "verdict/site_spread", "verdict/trend", "verdict/validity_criteria",
    "verdict/variation",
)  # fmt: skip

_BOUNDARY = "a number computed from measurements is never exactly the limit"
# Mutants that no test can kill because they change nothing that users see, each with the reason: module, the line of
# its source, and the code in the mutant.
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "analysis/disturbance_check",
        "if is_fast or (epoch.wall_s > multiple * median and epoch.wall_s > median + _LONGER_S):",
        "(epoch.wall_s >= multiple * median)",
    ): _BOUNDARY,
    ("analysis/study/scaling", "known = df if sd > NO_NOISE else 0", "(sd >= NO_NOISE)"): _BOUNDARY,
    (
        "analysis/study/file_system_pairs",
        "is_known = all(group.df for group in groups) and sum(parts) > NO_NOISE**2",
        "(sum(parts) >= NO_NOISE ** 2)",
    ): _BOUNDARY,
    (
        "verdict/night_series",
        "return difference if abs(difference) > _WEEKEND_DEVIATE * error * 1.2 else None",
        "(abs(difference) >= _WEEKEND_DEVIATE * error * 1.2)",
    ): _BOUNDARY,
    (
        "analysis/study/file_system_pairs",
        "return shared._replace(is_shared=statistic < _limit(tuple(sorted(dfs.tolist()))))",
        "(statistic <= _limit(tuple(sorted(dfs.tolist()))))",
    ): _BOUNDARY,
    ("analysis/study/file_system_pairs", "_DRAWS, _SEED = 20_000, 20_261_125", "(20001)"): "one random draw more",
    (
        "core/cache_accounting",
        "samples = [order.samples(place, place + 1)[0] for place in places if first <= place < last]",
        "(2)",
    ): "of the samples, the first is used",
    (
        "core/checkpoint",
        "keep, first = self._keys.keep, (number * self._ranks + rank) * 1024",
        "(number * self._ranks - rank)",
    ): "another order of numbers that are as unique",
    (
        "core/storage_probe",
        "while clock.now() < deadline:",
        "(clock.now() <= deadline)",
    ): "the clock is never exactly at the deadline",
    (
        "core/train",
        "self._kept: deque[_Kept] = deque(maxlen=2)",
        "(3)",
    ): "one more end of an epoch is kept, and not used",
    (
        "verdict/site_spread",
        "oldest = str(night - timedelta(days=_WEEK + 2))",
        "(3)",
    ): "jobs of one more day are looked at, and their nights leave them out",
}
