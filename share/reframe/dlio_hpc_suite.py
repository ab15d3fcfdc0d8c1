"""A dlio-hpc suite as a ReFrame test: its figures with the accepted baselines as references.

    reframe -c dlio_hpc_suite.py -r                                          # the nightly suite, on site local
    reframe -c dlio_hpc_suite.py -S suite=acceptance -S site=frontier -S data=/lustre/me/dlio -r

dlio-submit hands its jobs to the batch system by itself, so that ReFrame runs it where ReFrame runs; any system and
programming environment will do. What the suite's verdict says decides whether the test passes.
"""

import json
import statistics
from pathlib import Path
from typing import Any

import reframe as rfm
import reframe.utility.sanity as sn
import reframe.utility.typecheck as typ
from reframe.core.builtins import run_before, sanity_function, variable
from reframe.core.exceptions import SanityError

# The exit code of a suite that is inconclusive.
INCONCLUSIVE = 5


@rfm.simple_test
class dlio_hpc_suite(rfm.RunOnlyRegressionTest):
    """One figure a point of the suite: the median of its repeats."""

    descr = "Storage as deep learning uses it"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    local = True
    executable = "dlio-submit"
    maintainers = ["storage"]
    tags = {"storage", "production"}

    #: A shipped suite, or a YAML file of yours.
    suite = variable(str, value="nightly")
    #: A site profile's name or file.
    site = variable(str, value="local")
    #: The file system under test, a folder; empty: where the site says.
    data = variable(str, value="")
    #: Jobs and archives, whose history has the baselines.
    runs = variable(str, value="dlio-runs")
    #: More options of dlio-submit, such as -A project.
    options = variable(str, value="")
    #: Exit codes of the suite that pass: 0 is a pass; add 5 to accept inconclusive nights.
    passing = variable(typ.List[int], value=[0])

    _document = None

    @run_before("run")
    def say_what(self) -> None:
        here = Path.cwd()  # where ReFrame was started; dlio-submit will run in the stage folder
        asked = ["--suite", self.suite, "-s", self.site, "-o", str(here / self.runs)]
        data = self.data or ("dlio-data" if self.site == "local" else "")
        if data:
            asked += ["-d", str(here / data)]
        self.executable_opts = [*asked, "--wait", "--json", "--quiet", self.options]

    def _found(self) -> Any:
        if self._document is None:
            told, words = (Path(self.stagedir, str(each)).read_text() for each in (self.stdout, self.stderr))
            if not told:
                raise SanityError(f"dlio-submit ended without a document: {words.strip()}")
            self._document = json.loads(told)
        return self._document

    @sanity_function
    def is_passing(self) -> Any:
        verdict = self._found()["verdict"]
        return sn.assert_in(verdict["exit_code"], self.passing, msg=verdict["summary"])

    @run_before("performance")
    def measure(self) -> None:
        """Of each point its samples/s; references are the accepted baselines', with the suite's tolerance."""
        document = self._found()
        references = {}
        for point in document["points"]:
            name = point["title"].replace(" ", "_").replace(":", "").replace("=", "_")
            values = [one["samples_per_s"] for one in point["measurements"]]
            if values:
                median = sn.defer(statistics.median(values))
                self.perf_variables[name] = sn.make_performance_function(median, "samples/s")
                references[name] = self._reference(point["title"])
        self.reference = {"*": references}

    def _reference(self, title: str) -> tuple[Any, ...]:
        """Value, how far below and above it may be, unit; nothing to be held to where nothing was accepted."""
        for one in self._found()["verdict"]["comparisons"]:
            if one["title"] == title and one["metric"] == "samples_per_s" and one["there"] is not None:
                least = None if INCONCLUSIVE in self.passing else -one["tolerance"]
                return statistics.median(one["there"]["values"]), least, None, "samples/s"
        return 0, None, None, "samples/s"
