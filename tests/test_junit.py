"""Verdicts are written as JUnit's XML."""

from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from dlio_hpc.verdict import junit
from dlio_hpc.verdict.junit import Case

_KINDS = st.sampled_from(["pass", "failure", "error", "skipped"])
_CASES = st.builds(Case, st.text(), st.text(), _KINDS, st.text(), st.text(), st.text(), st.floats(0, 1e6))


def test_kinds_are_elements_with_their_type_message_and_evidence() -> None:
    cases = [
        Case("cosmoflow", "compare", "pass", "", "pass", "ratio 1.00", 1.5),
        Case("unet3d", "compare", "failure", "regression", "5 % less", "100 -> 95", 2),
        Case("resnet50", "compare", "error", "cached", "from memory", "", 0),
        Case("bert", "compare", "skipped", "", "not today", "", 0),
    ]
    root = ElementTree.fromstring(junit.document("nightly", cases))
    (suite,) = root
    assert root.tag == "testsuites"
    assert {name: suite.get(name) for name in ("name", "tests", "failures", "errors", "skipped", "time")} == {
        "name": "nightly", "tests": "4", "failures": "1", "errors": "1", "skipped": "1", "time": "3.500",
    }  # fmt: skip
    fine, failed, error, skipped = suite
    assert (fine.get("name"), fine.get("classname"), fine.get("time")) == ("cosmoflow", "compare", "1.500")
    assert [(element.tag, element.text) for element in fine] == [("system-out", "ratio 1.00")]
    assert [(element.tag, element.attrib, element.text) for element in failed] == [
        ("failure", {"type": "regression", "message": "5 % less"}, "100 -> 95")
    ]
    assert [(element.tag, element.get("type")) for element in error] == [("error", "cached")]
    assert [(element.tag, element.attrib) for element in skipped] == [("skipped", {"message": "not today"})]


@given(st.text(), st.lists(_CASES))
def test_any_text_makes_xml_that_can_be_read(suite: str, cases: list[Case]) -> None:
    root = ElementTree.fromstring(junit.document(suite, cases))
    assert len(root[0]) == len(cases)
    assert [len(list(case)) for case in root[0] if case.find("failure") is not None] == [
        1 for case in cases if case.kind == "failure"
    ]


def test_control_characters_are_told_as_such() -> None:
    root = ElementTree.fromstring(junit.document("s", [Case("a\x00b\x1b", "c", "failure", "t", "m\ud800", "é\n", 0)]))
    (case,) = root[0]
    assert case.get("name") == "a\ufffdb\ufffd"
    assert case[0].get("message") == "m\ufffd"
    assert case[0].text == "é\n"
