"""JUnit XML of verdicts, for CI systems. A failure means that the verdict is unfavourable; an error means that there is
no valid verdict.
"""

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

Kind = Literal["pass", "failure", "error", "skipped"]
# Characters that XML 1.0 does not allow, not even escaped (section 2.2).
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Case(NamedTuple):
    """A test case. type: type of the failure or error, such as "regression". message: a single line. text: the
    evidence, which may have several lines. seconds: duration of the measurement.
    """

    name: str
    classname: str
    kind: Kind
    type: str
    message: str
    text: str
    seconds: float


def document(suite: str, cases: Sequence[Case]) -> bytes:
    """Return the content of a JUnit file: one testsuite inside a testsuites element, as the parsers of Jenkins, GitLab
    and GitHub expect.
    """
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.kind == "failure" for case in cases)),
        "errors": str(sum(case.kind == "error" for case in cases)),
        "skipped": str(sum(case.kind == "skipped" for case in cases)),
        "time": _seconds(sum(case.seconds for case in cases)),
    }
    root = Element("testsuites", {"name": _fit(suite), **counts})
    group = ElementTree.SubElement(root, "testsuite", {"name": _fit(suite), **counts})
    for case in cases:
        _add(group, case)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _add(group: Element, case: Case) -> None:
    names = {"name": _fit(case.name), "classname": _fit(case.classname), "time": _seconds(case.seconds)}
    element = ElementTree.SubElement(group, "testcase", names)
    if case.kind == "pass":
        if case.text or case.message:
            ElementTree.SubElement(element, "system-out").text = _fit(case.text or case.message)
        return
    attributes = {"message": _fit(case.message)} if case.kind == "skipped" else {
        "type": _fit(case.type), "message": _fit(case.message)
    }  # fmt: skip
    ElementTree.SubElement(element, case.kind, attributes).text = _fit(case.text)


def _seconds(value: float) -> str:
    return f"{value:.3f}"


def _fit(text: str) -> str:
    """Return the text with each character that XML does not allow replaced by U+FFFD, the replacement character."""
    return _FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
