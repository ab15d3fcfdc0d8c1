"""A dlio-hpc suite as a ReFrame test: its metrics, with the accepted baselines as references.

    reframe -c dlio_hpc_suite.py -r                                          # the nightly suite, on site local
    reframe -c dlio_hpc_suite.py -S suite=acceptance -S site=frontier -S data=/lustre/me/dlio -r

ReFrame and dlio-hpc are installed in one environment. dlio-submit submits its jobs itself, so that ReFrame runs it
where ReFrame runs; any system and programming environment will do. The verdict of the suite decides whether the test
passes.
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

import dlio_hpc

# The exit code of a suite that is inconclusive.
INCONCLUSIVE = 5


@rfm.simple_test
class dlio_hpc_suite(rfm.RunOnlyRegressionTest):
    """A metric for each point of the suite: the median of its repeats in samples/s."""

    descr = "Storage as deep learning uses it"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    local = True
    executable = "dlio-submit"
    maintainers = ["storage"]
    tags = {"storage", "production"}

    #: Suite that ships, or a YAML file.
    suite = variable(str, value="nightly")
    #: Site profile, by name or file.
    site = variable(str, value="local")
    #: Folder on the file system under test; empty: the site's.
    data = variable(str, value="")
    #: Folder of jobs and archives, whose history has the baselines.
    runs = variable(str, value="dlio-runs")
    #: More options of dlio-submit, such as -A project.
    options = variable(str, value="")
    #: Exit codes of the suite that pass: 0 is a pass; add 5 to accept inconclusive nights.
    passing = variable(typ.List[int], value=[0])

    _judged = None

    @run_before("run")
    def set_options(self) -> None:
        here = Path.cwd()  # where ReFrame was started; dlio-submit runs in the stage folder
        self.runs = str(here / self.runs)
        options = ["--suite", self.suite, "-s", self.site, "-o", self.runs]
        data = self.data or ("dlio-data" if self.site == "local" else "")
        if data:
            options += ["-d", str(here / data)]
        self.executable_opts = [*options, "--wait", "--json", "--quiet", self.options]

    def _results(self) -> Any:
        """The study's report and its verdict."""
        if self._judged is None:
            out, err = (Path(self.stagedir, str(stream)).read_text() for stream in (self.stdout, self.stderr))
            if not out:
                raise SanityError(f"dlio-submit printed no document: {err.strip()}")
            study = dlio_hpc.report_study(json.loads(out)["study"], runs=Path(self.runs))
            self._judged = study, dlio_hpc.judge_suite(study)
        return self._judged

    @sanity_function
    def is_passing(self) -> Any:
        _, verdict = self._results()
        return sn.assert_in(verdict.exit_code, self.passing, msg=verdict.summary)

    @run_before("performance")
    def measure(self) -> None:
        """Set samples/s of each point; references are those of the accepted baselines, with the suite's tolerance."""
        report, _ = self._results()
        study, references = report.outcome.study, {}
        for point in study.points:
            title = study.title(point)
            rates = [run.summary.samples_per_s for run in report.outcome.measured if run.point == point.number]
            if rates:
                name = title.replace(" ", "_").replace(":", "").replace("=", "_")
                median = sn.defer(statistics.median(rates))
                self.perf_variables[name] = sn.make_performance_function(median, "samples/s")
                references[name] = self._reference(title)
        self.reference = {"*": references}

    def _reference(self, title: str) -> tuple[Any, ...]:
        """Value, lower and upper tolerance, unit; no tolerance for a point without a baseline."""
        _, verdict = self._results()
        for comparison in verdict.judgement.verdicts:
            if comparison.title == title and comparison.metric == "samples_per_s" and comparison.there is not None:
                lowest = None if INCONCLUSIVE in self.passing else -comparison.tolerance
                return statistics.median(comparison.there.values), lowest, None, "samples/s"
        return 0, None, None, "samples/s"
