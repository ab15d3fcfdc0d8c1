"""Values that shells complete: names of workloads, sites, studies, suites, criteria and jobs, and keys of -S and -P."""

import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

# Keys that are offered with "=" after them, and the character that separates several values of -P.
_EQUALS, _SEPARATOR = "=", ","


def of_option(name: str, metavar: str | None) -> Completer | None:
    """Return the function that completes the value of an option. Return None if click itself completes it. name: long
    name without "--".
    """
    kinds = {"site": "SITES", "study": "STUDIES", "suite": "SUITES", "criteria": "CRITERIA"}
    if name in kinds and metavar == "NAME|FILE":
        return _names(kinds[name])
    return {"set": _settings, "sweep": _settings, "workload": _names("WORKLOADS")}.get(name)


def of_argument(name: str, metavar: str | None) -> Completer | None:
    """Return the function that completes an argument. Return None if click itself completes it."""
    if name == "workload":
        return _names("WORKLOADS")
    return _jobs if metavar is not None and ("JOB" in metavar or "STUDY" in metavar) else None


def _names(kind: str) -> Completer:
    """Return a function that completes names of YAML files. kind: name of a constant in config.shipped."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from dlio_hpc.config import shipped

        if "/" in incomplete or incomplete.startswith("."):
            return [CompletionItem(incomplete, type="file")]
        return [CompletionItem(name) for name in shipped.names(getattr(shipped, kind)) if name.startswith(incomplete)]

    return complete


workloads: Completer = _names("WORKLOADS")
sites: Completer = _names("SITES")


def _jobs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names of jobs and studies in the folder of jobs, newest first. If the text is the beginning of a path,
    return files.
    """
    from dlio_hpc.files import rundir

    runs = Path(ctx.params.get("runs") or "dlio-runs")
    marks = (*runs.glob(f"*/{rundir.JOB}"), *runs.glob(f"*/{rundir.STUDY}"))
    folders = {mark.parent: mark.stat().st_mtime for mark in marks}
    names = [folder.name for folder in sorted(folders, key=folders.__getitem__, reverse=True)]
    fitting = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return fitting or [CompletionItem(incomplete, type="file")]


def _settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the keys of the workload and of the site that begin with the text. If the text has a key and =, return the
    values of the key.
    """
    from dlio_hpc.config.site import Site
    from dlio_hpc.config.workload import Workload

    roots = {"": Workload, "site.": Site}
    key, equals, value = incomplete.partition(_EQUALS)
    if not equals:
        known = [path for prefix, struct in roots.items() for path, _ in _keys(struct, prefix)]
        return [CompletionItem(f"{path}{_EQUALS}") for path in known if path.startswith(key)]
    kinds = {path: kind for prefix, struct in roots.items() for path, kind in _keys(struct, prefix)}
    before, separator, last = value.rpartition(_SEPARATOR) if param.name == "sweeps" else ("", "", value)
    values = _values(kinds.get(key))
    return [CompletionItem(f"{key}={before}{separator}{word}") for word in values if word.startswith(last)]


def _keys(struct: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a struct that hold values, each with its type."""
    import msgspec

    for field in msgspec.structs.fields(struct):
        inner = [part for part in (field.type, *typing.get_args(field.type)) if hasattr(part, "__struct_fields__")]
        if not inner or len(typing.get_args(field.type)) > 1:
            yield f"{prefix}{field.encode_name}", field.type
        for part in inner if typing.get_origin(field.type) not in (tuple, dict) else ():
            yield from _keys(part, f"{prefix}{field.encode_name}.")


def _values(kind: Any) -> list[str]:
    """Return the values of a type that has only a few values: the values of a Literal, true and false, or null."""
    if kind is bool:
        return ["true", "false"]
    if kind is type(None):
        return ["null"]
    if typing.get_origin(kind) is typing.Literal:
        return [str(value) for value in typing.get_args(kind)]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [value for part in typing.get_args(kind) for value in _values(part)]
    return []
