"""Messages about options that click refuses, with suggestions."""

import click

from dlio_hpc.config import shipped

# Options of batch systems, launchers and dlio_benchmark, and what they are called here.
_ELSEWHERE = {
    "--ntasks": "--ppn", "--ntasks-per-node": "--ppn", "--tasks-per-node": "--ppn", "--ranks": "--ppn", "-n": "--ppn",
    "--ranks-per-node": "--ppn", "--np": "--ppn", "--num-nodes": "--nodes", "--partition": "--queue", "-p": "--queue",
    "--qos": "--queue", "--walltime": "--time", "--time-limit": "--time", "--project": "--account",
    "--data-dir": "--data", "--data-folder": "--data",
}  # fmt: skip
# Options and arguments that a verb does not take, and what would do, by the verb and the option; "" is an argument.
_INSTEAD = {
    ("import", "-S"): "write the keys of dlio_benchmark as it takes them, such as ++workload.reader.batch_size=8; set "
    "keys of dlio-hpc with -S when you submit the workload",
    ("estimate", "--wait"): "estimate submits nothing; leave --wait out, or submit with dlio-submit",
    ("estimate", "--dry-run"): "estimate submits nothing; leave --dry-run out",
    ("clean", ""): "clean takes no jobs; it removes what killed commands left below --runs. The directory of an "
    "archived job is no longer needed: remove it with rm",
    ("submit", ""): "give one workload. Put patterns in quotes, so that the shell does not expand them: --existing "
    "'*.npz'",
}


def improved(fault: click.ClickException) -> click.ClickException:
    """Return an error of click with more advice: the option for which other programs have this name, and the meaning of
    a missing option.
    """
    if isinstance(fault, click.NoSuchOption) and fault.ctx is not None:
        option = _ELSEWHERE.get(fault.option_name)
        if option is not None and any(option in param.opts for param in fault.ctx.command.params):
            return click.UsageError(f"No such option {fault.option_name!r}; did you mean {option!r}?", fault.ctx)
    if isinstance(fault, click.UsageError) and fault.ctx is not None and (text := _instead(fault, fault.ctx)):
        return click.UsageError(f"{fault.format_message().rstrip('.')}: {text}", fault.ctx)
    if isinstance(fault, click.MissingParameter) and isinstance(fault.param, click.Option) and fault.param.help:
        return click.UsageError(f"{fault.format_message().rstrip('.')}: {fault.param.help}", fault.ctx)
    return fault


def _instead(fault: click.UsageError, context: click.Context) -> str | None:
    """Return a suggestion to replace an option or argument that the verb does not accept."""
    if isinstance(fault, click.NoSuchOption):
        return _INSTEAD.get((context.command.name or "", fault.option_name))
    message = fault.format_message()
    if "unexpected extra argument" not in message:
        return None
    extra = message.partition("(")[2].partition(")")[0].split()
    site = next((word for word in extra if word in shipped.names(shipped.SITES)), None)
    if site is not None and any("--site" in param.opts for param in context.command.params):
        return f"a site is given by an option: -s {site}"
    return _INSTEAD.get((context.command.name or "", ""))
