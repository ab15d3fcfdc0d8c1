"""The command dlio-hpc schema."""

import json

import click

from dlio_hpc.cli import json_documents
from dlio_hpc.cli.verbs import SETTINGS, NamedChoice, argument

NAMES = ("workload", "site", "study", "suite", "criteria")


@click.command(context_settings=SETTINGS)
@argument("name", type=click.Choice(NAMES), required=False)
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
