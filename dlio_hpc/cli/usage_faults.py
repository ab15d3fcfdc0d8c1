"""Messages about options that click refuses, with what would do."""

import click

# Options of batch systems, launchers and dlio_benchmark, and what they are called here.
_ELSEWHERE = {
    "--ntasks": "--ppn", "--ntasks-per-node": "--ppn", "--tasks-per-node": "--ppn", "--ranks": "--ppn", "-n": "--ppn",
    "--ranks-per-node": "--ppn", "--np": "--ppn", "--num-nodes": "--nodes", "--partition": "--queue", "-p": "--queue",
    "--qos": "--queue", "--walltime": "--time", "--time-limit": "--time", "--project": "--account",
    "--data-dir": "--data", "--data-folder": "--data",
}  # fmt: skip


def improved(fault: click.ClickException) -> click.ClickException:
    """Return an error of click with more advice: the option that other programs call as the user did, and the meaning
    of a missing option.
    """
    if isinstance(fault, click.NoSuchOption) and fault.ctx is not None:
        option = _ELSEWHERE.get(fault.option_name)
        if option is not None and any(option in param.opts for param in fault.ctx.command.params):
            return click.UsageError(f"No such option {fault.option_name!r}; did you mean {option!r}?", fault.ctx)
    if isinstance(fault, click.MissingParameter) and isinstance(fault.param, click.Option) and fault.param.help:
        return click.UsageError(f"{fault.format_message().rstrip('.')}: {fault.param.help}", fault.ctx)
    return fault
