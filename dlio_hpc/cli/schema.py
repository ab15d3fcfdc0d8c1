"""The command dlio-hpc schema."""

import json

import click

from dlio_hpc.cli.verbs import SETTINGS, argument

NAMES = ("workload", "site", "study", "suite", "criteria")


@click.command(context_settings=SETTINGS)
@argument("name", type=click.Choice(NAMES))
def schema(name: str) -> None:
    """Print the JSON Schema of a kind of YAML file.

    Editors complete and check a file whose first line names it: # yaml-language-server: $schema=workload.json
    """
    from dlio_hpc import json_schema

    print(json.dumps(json_schema.of(name), indent=2))
