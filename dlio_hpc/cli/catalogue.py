"""dlio-hpc sites and dlio-hpc workloads: list the profiles or workloads, or print one."""

import re
import textwrap
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError, about
from dlio_hpc.cli import console, shell_completion
from dlio_hpc.cli.outputs import OUTPUT
from dlio_hpc.cli.verbs import JSON, SETTINGS, argument
from dlio_hpc.config import defaults, launcher_rules, shipped, site, workload
from dlio_hpc.config.dlio_benchmark import workload_files
from dlio_hpc.documents.files import ListedSite, ListedWorkload, NewSiteDocument, SitesDocument, WorkloadsDocument


class _Sites(click.Group):
    """The command group `sites`. The command `sites NAME` shows the profile with this name or path."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return [*super().shell_complete(ctx, incomplete), *shell_completion.sites(ctx, self.params[0], incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        known = super().get_command(ctx, cmd_name)
        return known or click.Command(
            cmd_name, help="Show this profile.", params=[_JSON], callback=lambda as_json: _show_site(cmd_name, as_json)
        )


# Width of the lists of profiles and workloads.
_COLUMNS = 80
_SCHEMA = re.compile(r"\A(# yaml-language-server: \$schema=)(\.\S*)")
_JSON = click.Option(["--json", "as_json"], is_flag=True, envvar="DLIO_HPC_JSON", help="Print one JSON document.")


@click.group(cls=_Sites, invoke_without_command=True, context_settings=SETTINGS, subcommand_metavar="[NAME|FILE|new]")
@JSON
@click.pass_context
def sites(context: click.Context, as_json: bool) -> None:
    """List the site profiles, print one (NAME or FILE), or write one for this machine (new)."""
    if context.invoked_subcommand is not None:
        return
    profiles = [(name, site.load(name), path) for name, path in sorted(shipped.files(shipped.SITES).items())]
    if as_json:
        listed = [
            ListedSite(name, profile.scheduler, profile.description, str(path)) for name, profile, path in profiles
        ]
        console.print_json(SitesDocument(listed))
        return
    known = defaults.load()
    here = known["site"].value if "site" in known else site.here()
    for name, profile, path in profiles:
        mark = "*" if name == here else " "
        _show_listed(f"{mark} {name:12} {profile.scheduler:8} ", profile.description, path)
    console.show("* default of --site on this host")
    for key, default in known.items():
        console.show(f"default: --{key} {default.value}, from {default.path}")


def _show_listed(start: str, description: str, path: Path) -> None:
    """Print an entry of a list in lines of at most 80 columns. Names and paths are not broken. start: text of the first
    columns. path: file of the entry. If the file is not a shipped one, the entry says where it is.
    """
    origin = shipped.origin(path)
    text = f"{description}  [{origin}]" if origin else description
    indent = " " * len(start)
    for line in textwrap.wrap(
        text, _COLUMNS, initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [start]:
        console.show(line.rstrip())


@sites.command()
@argument("name")
@click.option("--to", type=OUTPUT, metavar="FILE", help="File to write; -: stdout. Default: ./NAME.yaml.")
@click.option(
    "--launch", is_flag=True,
    help="Run small jobs on two nodes to find out how hydra can start ranks on the other nodes of a job.",
)  # fmt: skip
@click.option(
    "--account", metavar="NAME", envvar="DLIO_HPC_ACCOUNT", help="Account to charge for the jobs of --launch."
)
@click.option("--queue", metavar="NAME", help="Queue for the jobs of --launch. Default: the batch system's.")
@JSON
def new(name: str, to: Path | None, launch: bool, account: str | None, queue: str | None, as_json: bool) -> None:
    """Write a site profile NAME for this machine, with comments: scheduler, queues, launcher, MPI, file systems."""
    from dlio_hpc.batch import new_site_profile

    if (stem := name.removesuffix(".yaml").removesuffix(".yml")) != name:
        raise ConfigError(f"{name} is the name of a file; give the name of the profile: sites new {stem or 'NAME'}")
    target = to or Path(f"{name}.yaml")
    if str(to) != "-" and target.exists():
        raise _exists(target)
    text = new_site_profile.profile(name)
    if launch:
        from dlio_hpc.batch import launch_trial

        text = launch_trial.profile(text, account, queue)
    if str(to) == "-":
        if as_json:
            console.print_json(NewSiteDocument(name, None, text))
        else:
            click.echo(text, nl=False)
        return
    try:
        with about(target), target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise _exists(target) from None
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as fault:
        raise ConfigError(_no_place(target, fault)) from fault
    if as_json:
        console.print_json(NewSiteDocument(name, str(target), text))
        return
    path = target if target.is_absolute() else f"./{target}"
    console.show(f"wrote {target}; review it, then run: dlio-hpc check -s {path} -d DIR")


def _no_place(target: Path, fault: OSError) -> str:
    """Return the message for a file that cannot be created because of its path."""
    if isinstance(fault, FileNotFoundError):
        return (
            f"{target}: the folder {target.parent} does not exist; create it (mkdir -p), or give another file with --to"
        )
    return f"{target}: {fault.strerror}; give another file with --to"


def _exists(target: Path) -> ConfigError:
    return ConfigError(f"{target} already exists; give another name, or another file with --to")


def _show_site(name: str, as_json: bool) -> None:
    profile = site.load(name)
    if foreign := launcher_rules.note(profile.scheduler, profile.launcher.kind):
        console.say(f"note: {foreign}")
    _show(profile, shipped.find(shipped.SITES, name), as_json)


@click.command(context_settings=SETTINGS)
@argument("name", required=False, metavar="[NAME|FILE]", shell_complete=shell_completion.workloads)
@JSON
def workloads(name: str | None, as_json: bool) -> None:
    """List the workloads, or print one (NAME or FILE; dlio:NAME for a workload of dlio_benchmark)."""
    if name is not None and workload_files.is_name(name):
        _show_imported(name, as_json)
        return
    if name is not None:
        _show(workload.load(name), shipped.find(shipped.WORKLOADS, name), as_json)
        return
    known = [(file, workload.load(file), path) for file, path in sorted(shipped.files(shipped.WORKLOADS).items())]
    if as_json:
        listed = [
            ListedWorkload(file, made.dataset.format, made.dataset.size, made.description, str(path))
            for file, made, path in known
        ]
        console.print_json(WorkloadsDocument(listed))
        return
    for file, listed_workload, path in known:
        data = listed_workload.dataset
        size = units.format_size(data.size) if data.facts.holds_data else "-"
        _show_listed(f"{file:15} {data.format:8} {size:>9}  ", listed_workload.description, path)


def _show_imported(name: str, as_json: bool) -> None:
    from dlio_hpc.config.dlio_benchmark import importing
    from dlio_hpc.reports import imported_yaml

    known = workload.load(name)
    text = imported_yaml.write(importing.load(workload_files.find(name)))
    click.echo(serialization.encode(known).decode() if as_json else text, nl=False)


def _show(value: object, path: Path, as_json: bool) -> None:
    """Print the YAML file of a profile or workload. If `as_json` is True, print its contents as JSON instead, with all
    defaults filled in.
    """
    click.echo(serialization.encode(value).decode() if as_json else _text(path), nl=False)


def _text(path: Path) -> str:
    """Return the text of a YAML file. A relative path of its JSON Schema becomes absolute."""
    text = path.read_text(encoding="utf-8")
    return _SCHEMA.sub(lambda match: f"{match[1]}{(path.parent / match[2]).resolve()}", text, count=1)
