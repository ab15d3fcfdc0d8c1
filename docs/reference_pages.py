"""Generated parts of the reference pages: `make reference` writes them into docs/reference/*.md.

A generated part is between a mark, such as `<!-- keys: workload -->`, and `<!-- end -->`. The name in a mark is a kind
of file of `dlio-hpc schema`, or a struct of files that dlio-hpc writes. Lines have at most 79 characters, for pagers.
"""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

import dlio_hpc
from dlio_hpc.base import key_texts
from dlio_hpc.cli import json_documents, key_table, man_page
from dlio_hpc.cli.key_table import KeyFacts, KeySection
from dlio_hpc.cli.verb_groups import VERBS
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import Workload
from dlio_hpc.results.metrics import METRICS
from dlio_hpc.results.probe_result import StorageProbe
from dlio_hpc.results.run_result import Result
from dlio_hpc.verdict.criteria_file import Criteria

FOLDER = Path(__file__).parent / "reference"
_PART = re.compile(r"(<!-- (\w+)(?:: (\S+))? -->\n).*?(<!-- end -->)", re.DOTALL)
_WIDTH = 79
# Structs of JSON documents that have a page of their own.
_PAGES: dict[Any, str] = {
    Result: "result.md", StorageProbe: "result.md#probejson", Workload: "workload.md", Site: "site.md",
    Criteria: "criteria.md",
}  # fmt: skip


def filled(page: str) -> str:
    """Return the text of a page with its generated parts made from the program."""
    return _PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]](*filter(None, [part[3]]))}\n\n{part[4]}", page)


def keys_of(name: str) -> str:
    """Return the keys of a kind of YAML file."""
    return "\n\n".join(_section(section, _key) for section in key_table.of(name))


def fields_of(name: str) -> str:
    """Return the fields of a struct that dlio-hpc writes. name: MODULE.STRUCT."""
    module, _, struct = name.rpartition(".")
    listed = key_table.sections(getattr(importlib.import_module(module), struct))
    return "\n\n".join(
        _section(section, lambda key: _item(key.name, f"{_kind(key)}. {key.meaning}")) for section in listed
    )


def _section(section: KeySection, entry: Callable[[KeyFacts], str]) -> str:
    heading = [f"### {section.path}", _filled(section.text)] if section.path else []
    return "\n\n".join([*heading, *map(entry, section.keys)])


def _key(key: KeyFacts) -> str:
    """Return a key with its facts in one paragraph, and its meaning in another."""
    return f"{_item(key.name, '; '.join([_kind(key), *key_table.facts(key)]))}\n\n{_filled(key.meaning, '    ')}"


def _kind(key: KeyFacts) -> str:
    """Return the type of a key, with links to the sections of mappings in it."""
    places = dict.fromkeys(f"{key.path}{suffix}" for _, suffix in key_table.structs_in(key.type))
    links = " and ".join(f"[{place}](#{_anchor(place)})" for place in places)
    return f"{key.kind}, see {links}" if links and "mapping" in key.kind else key.kind


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w-]", "", heading).lower()


def metrics() -> str:
    """Return the metrics: name, unit, better direction, formula, source, and runs that lack it."""
    entries = []
    for name, metric in METRICS.items():
        better = "higher is better" if metric.is_higher_better else "lower is better"
        facts = [f"unit {metric.unit}" if metric.unit else "", better]
        sentences = [metric.formula, f"Source: {metric.source}", metric.absent and f"Absent or 0: {metric.absent}"]
        meaning = " ".join(sentence.rstrip(".") + "." for sentence in sentences if sentence)
        entries.append(f"{_item(name, '; '.join(filter(None, facts)))}\n\n{_filled(meaning, '    ')}")
    return "\n\n".join(entries)


def api() -> str:
    """Return the functions of the Python API: signature and docstring of each."""
    parts = []
    for name in dlio_hpc.__all__:
        function = getattr(dlio_hpc, name)
        if inspect.isfunction(function):
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
            assert isinstance(definition, ast.FunctionDef)
            arguments, result = ast.unparse(definition.args), ast.unparse(definition.returns or ast.Constant(None))
            signature = f"{name}({arguments}) -> {result}".replace("'", "").replace('"', "")
            described = _filled(" ".join((inspect.getdoc(function) or "").split()))
            parts.append(f"### {name}\n\n```python\n{signature}\n```\n\n{described}")
    return "\n\n".join(parts)


def documents() -> str:
    """Return the verbs with their JSON documents, and the fields of each document and of the structs in it. A struct
    that has a page of its own is a link to this page.
    """
    entries = []
    structs: dict[Any, None] = {}
    for verb in json_documents.DOCUMENTS:
        kinds = json_documents.structs_of(verb)
        structs |= dict.fromkeys(kind for kind in kinds if kind not in _PAGES)
        entries.append(_item(verb, " or ".join(map(_link, kinds))))
    entries += [_item(verb, f"no `--json`: {reason}") for verb, reason in json_documents.WITHOUT.items()]
    structs[json_documents.struct(json_documents.FAILURE)] = None
    return "\n\n".join(["\n".join(entries), *(_document(struct) for struct in _with_inner(structs))])


def _with_inner(structs: dict[Any, None]) -> list[Any]:
    """Return the structs, and all structs in them that have no page of their own, each after the first one that has
    it.
    """
    listed: list[Any] = []
    waiting = list(structs)
    while waiting:
        struct = waiting.pop(0)
        if struct in listed or struct in _PAGES:
            continue
        listed.append(struct)
        inner = [kind for field in msgspec.structs.fields(struct) for kind, _ in key_table.structs_in(field.type)]
        waiting = [*inner, *waiting]
    return listed


def _document(struct: Any) -> str:
    """Return the heading, the docstring and the fields of a struct of a JSON document."""
    texts = key_texts.of_fields(struct)
    entries = []
    for field in msgspec.structs.fields(struct):
        meaning = texts[field.name].meaning if field.name in texts else ""
        if not meaning and field.name in METRICS:
            meaning = f"{METRICS[field.name].formula.rstrip('.')}."
        entries.append(_item(field.encode_name, f"{key_table.describe(field.type, _link)}. {meaning}".strip()))
    return "\n\n".join([f"### {struct.__name__}", _filled(key_texts.lead(struct)), "\n".join(entries)])


def _link(struct: Any) -> str:
    return f"[{struct.__name__}]({_PAGES.get(struct, f'#{struct.__name__.lower()}')})"


def commands() -> str:
    """Return the commands with their help: usage, text and options."""
    return "\n\n".join(part for name in VERBS for part in _command(man_page.context_of(name), "##"))


def _command(context: click.Context, level: str) -> Iterator[str]:
    """Yield the parts of a command and of the commands within it. level: the mark of its heading."""
    yield f"{level} {context.command_path}"
    usage = " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
    yield f"```text\n{_filled(usage)}\n```"
    yield from _paragraphs(context.command.help or "")
    options = [param.get_help_record(context) for param in context.command.get_params(context)]
    yield "\n".join(_item(record[0], record[1]) for record in options if record and record[1])
    if isinstance(context.command, click.Group):
        for inner in man_page.contexts_within(context):
            yield from _command(inner, f"{level}#")


def _paragraphs(help_text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text. A paragraph that click does not wrap is a block of code."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(help_text).strip()):
        first, _, rest = paragraph.partition("\n")
        yield f"```text\n{rest}\n```" if first.strip() == "\b" else _filled(" ".join(paragraph.split()))


def _item(name: str, stated: str) -> str:
    """Return an entry of a list."""
    return _wrapped(f"`{name}`: {stated}", "- ", "  ")


def _filled(paragraph: str, indent: str = "") -> str:
    return _wrapped(paragraph, indent, indent)


def _wrapped(paragraph: str, first: str, others: str) -> str:
    """Return a paragraph in lines. Names and values between backticks stay on one line."""
    whole = re.sub(r"`[^`]+`", lambda match: match[0].replace(" ", "\0"), paragraph)
    lines = textwrap.wrap(
        whole, _WIDTH, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace("\0", " ")


# What makes the part of a mark.
PARTS: dict[str, Callable[..., str]] = {
    "keys": keys_of, "fields": fields_of, "metrics": metrics, "api": api, "documents": documents, "commands": commands,
}  # fmt: skip


def outdated() -> Iterable[tuple[Path, str]]:
    """Yield the pages whose generated parts differ from the program, each with the text that it should have."""
    for path in sorted(FOLDER.glob("*.md")):
        page = path.read_text()
        if (made := filled(page)) != page:
            yield path, made


if __name__ == "__main__":
    for outdated_page, text in outdated():
        outdated_page.write_text(text)
        print(outdated_page.relative_to(FOLDER.parent.parent))
