"""Modules that decide figures and verdicts, and the mutants of them that change nothing."""

TARGETS = (
    "analysis/storage_check", "analysis/study/best_setting", "analysis/study/file_system_pairs",
    "analysis/study/ratios", "analysis/study/scaling", "analysis/disturbance_check", "core/cache_accounting",
    "core/checkpoint", "core/distributions", "core/evaluation", "core/merge", "core/train",
    "darshan/clock_alignment", "darshan/log_faults", "darshan/run_check", "dataset/planned_bytes",
    "dataset/rank_shares", "records/job_outcome", "results/intervals", "results/metrics",
    "verdict/acceptance", "verdict/baseline_comparison", "verdict/change_detection", "verdict/history_entry",
    "verdict/night_series", "verdict/performance_criteria", "verdict/regression", "verdict/run_groups",
    "verdict/settings_digest", "verdict/variation",
)  # fmt: skip

# Mutants that no test can kill because they change nothing, each with the reason.
EQUIVALENT: dict[str, str] = {}
