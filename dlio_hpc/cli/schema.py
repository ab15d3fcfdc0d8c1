"""The command dlio-hpc schema."""

import json
from collections.abc import Iterator

import click

from dlio_hpc.base.errors import name_hint
from dlio_hpc.cli import json_documents
from dlio_hpc.cli.verbs import SETTINGS, NamedChoice, argument

NAMES = ("workload", "site", "study", "suite", "criteria")
# Kinds of files whose keys differ. A suite has the keys of a study.
_OWNERS = {"workload": "a workload", "site": "a site profile", "study": "a study", "criteria": "a criteria file"}
# Maximum number of keys of a section that a message lists.
_MOST_LISTED = 8


class _Kind(NamedChoice):
    """Type of the argument that names a kind of file. For a section or a key of a file, it says which kind has it."""

    def hint(self, value: str) -> str:
        return super().hint(value) or _of_a_key(value)


def _of_a_key(name: str) -> str:
    """Return advice if the name is that of a section or a key of a file, or similar to a section; otherwise "". name:
    a name with or without its section, such as reader.batch_size or batch_size.
    """
    keys = [(kind, key) for kind in _OWNERS for key in _keys(kind)]
    for kind, key in sorted(keys, key=lambda item: item[1] != name):
        if key == name or key.endswith(f".{name}"):
            return _explained(kind, key)
    sections = [key for kind, key in keys if _keys_below(kind, key)]
    return name_hint(name, sections)


def _explained(kind: str, key: str) -> str:
    """Return what a key of a kind of file is, and the command that shows its meaning."""
    command = f"dlio-hpc schema {kind} --text"
    if not (below := _keys_below(kind, key)):
        return f"{key} is a key of {_OWNERS[kind]}; {command} | grep -A3 {key.rpartition('NAME.')[2]} explains it; "
    title = key if f"{key}.{below[0]}" in _keys(kind) else f"{key}.NAME"
    listed = ", ".join([*below[:_MOST_LISTED], *(["..."] if below[_MOST_LISTED:] else [])])
    return (
        f"{key} is a section of {_OWNERS[kind]} with the keys {listed}; {command} explains them below the line "
        f"{title!r}; "
    )


def _keys(kind: str) -> Iterator[str]:
    """Yield all keys of a kind of file, as in reader.read_threads."""
    from dlio_hpc.base import key_faults
    from dlio_hpc.cli import json_schema

    yield from key_faults.keys_of(json_schema.KINDS[kind])


def _keys_below(kind: str, section: str) -> list[str]:
    """Return the keys of a section without its name. The list of a key that is no section is empty."""
    below = [key.removeprefix(f"{section}.") for key in _keys(kind) if key.startswith(f"{section}.")]
    return [key for key in (name.removeprefix("NAME.") for name in below) if "." not in key]


@click.command(context_settings=SETTINGS)
@argument("name", type=_Kind(NAMES), required=False)
@click.option("--text", "as_text", is_flag=True, help="Print all keys of NAME for a terminal of 80 columns instead.")
@click.option(
    "--json-of", "verb", type=NamedChoice(list(json_documents.DOCUMENTS)), metavar="COMMAND",
    help='Print the schema of the document that COMMAND prints with --json: report, "baseline list".',
)  # fmt: skip
def schema(name: str | None, as_text: bool, verb: str | None) -> None:
    """Print the JSON Schema of a kind of YAML file, or of the JSON document that a command prints.

    With --text, print each key with its type, unit, default, example and meaning.

    Editors complete and check a file whose first line names it: # yaml-language-server: $schema=workload.json
    """
    from dlio_hpc.cli import json_schema, key_table

    if name is not None and verb is not None:
        raise click.UsageError(f"{name} and --json-of {verb} exclude each other; give one of them")
    if name is None and verb is None:
        raise click.UsageError(f"give one of {', '.join(map(repr, NAMES))}, or --json-of COMMAND")
    if as_text and name is None:
        raise click.UsageError(
            f"--text prints the keys of one of {', '.join(map(repr, NAMES))}, not of --json-of COMMAND"
        )
    if as_text:
        print(key_table.text(str(name)))
        return
    if name is not None:
        made = json_schema.of(name)
    else:
        kinds = [*json_documents.structs_of(str(verb)), json_documents.struct(json_documents.FAILURE)]
        made = json_schema.of_documents(f"dlio-hpc {verb} --json", kinds)
    print(json.dumps(made, indent=2))
