"""The recorder in programs that are not ours: it changes nothing, survives what they do, and stores no content."""

import ast
import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.programs.recorder import recording
from dlio_hpc.programs.recorder.recording import EventWriter
from dlio_hpc.programs.recordings import recorded_run, recording_files
from dlio_hpc.programs.recordings.recording_files import ProcessRecording

# Python 3.8 is found on the path, or among the versions of pyenv.
_OLDEST = "python3.8"


class Recorder:
    """A folder in which programs run under the recorder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recording = folder / "recording"
        recorded_run.prepare(self.recording)

    def environment(self, is_anonymous: bool = False) -> dict[str, str]:
        return os.environ | recorded_run.variables(self.recording, is_anonymous)

    def run(
        self, text: str, *options: str, python: str = sys.executable, is_anonymous: bool = False, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        script = self.folder / "program.py"
        script.write_text(text)
        return subprocess.run(
            [python, *options, str(script)], env=self.environment(is_anonymous) | variables, cwd=self.folder,
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip

    def processes(self) -> list[ProcessRecording]:
        return recording_files.load(self.recording)

    def opened(self) -> list[str]:
        """Return the names of the files that all processes opened."""
        return [
            Path(process.files[event.values[0]]).name
            for process in self.processes() for event in process.events if event.kind == "open"
        ]  # fmt: skip


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


def _kinds(recording: ProcessRecording) -> list[str]:
    return [event.kind for event in recording.events]


_READS = """
with open("data.bin", "wb") as file:
    file.write(bytes(5000))
print(len(open("data.bin", "rb").read()))
"""


def test_files_are_recorded_in_the_order_in_which_they_are_opened(recorder: Recorder) -> None:
    done = recorder.run(_READS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "5000\n", "")
    (process,) = recorder.processes()
    assert [event.values[1] for event in process.events if event.kind == "open"] == [1, 0]
    assert recorder.opened() == ["data.bin", "data.bin"]
    (written,) = [event for event in process.events if event.kind == "written"]
    assert written.values == (0, 5000)
    assert process.has_end
    assert process.process.script.endswith("/program.py")


def _oldest() -> str:
    """Return the path of Python 3.8."""
    done = subprocess.run(
        ["sh", "-c", f"PYENV_VERSION=3.8 {_OLDEST} -c 'import sys; print(sys.executable)'"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip("this machine has no Python 3.8")
    return done.stdout.strip()


@pytest.mark.parametrize("is_oldest", [False, True])
def test_an_exit_code_and_a_traceback_are_the_programs(recorder: Recorder, is_oldest: bool) -> None:
    python = _oldest() if is_oldest else sys.executable
    text = "import sys\ntry:\n    open('nowhere')\nexcept FileNotFoundError as fault:\n    print(fault)\nsys.exit(7)\n"
    done = recorder.run(text, python=python)
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout == "[Errno 2] No such file or directory: 'nowhere'\n"
    raised = recorder.run("def f():\n    return {}['key']\nf()\n", python=python)
    plain = subprocess.run(
        [python, str(recorder.folder / "program.py")], capture_output=True, text=True, check=False, cwd=recorder.folder
    )
    assert (raised.returncode, raised.stderr) == (plain.returncode, plain.stderr)


def test_the_recorder_is_written_for_python_3_8() -> None:
    for path in recorded_run.RECORDER.rglob("*.py"):
        ast.parse(path.read_text(), feature_version=(3, 8))
        imported = {
            (node.module or "").split(".")[0] if isinstance(node, ast.ImportFrom) else node.names[0].name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and not node.level)
        }
        assert imported <= {*sys.stdlib_module_names, "dlio_recorder"}, path


def test_the_sites_own_start_runs_too(recorder: Recorder) -> None:
    own = recorder.folder / "site"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os\nos.environ['SITE'] = 'ran'\n")
    path = f"{recorder.environment()['PYTHONPATH']}:{own}"
    done = recorder.run("import os, sitecustomize\nprint(os.environ['SITE'], sitecustomize.__file__)", PYTHONPATH=path)
    assert done.stdout == f"ran {own}/sitecustomize.py\n"
    assert len(recorder.processes()) == 1


@pytest.mark.parametrize("option", ["-I", "-S", "-E"])
def test_a_python_that_ignores_the_recorder_is_said_to_be_unrecorded(recorder: Recorder, option: str) -> None:
    assert recorder.run(_READS, option).stdout == "5000\n"
    assert recorded_run.summary(recorder.recording).startswith("nothing was recorded: ")
    assert option in recorded_run.summary(recorder.recording)


def test_a_killed_process_loses_half_a_second_at_most(recorder: Recorder) -> None:
    text = (
        "import os, time\nfor n in range(40):\n    open(f'{n}.bin', 'wb').close()\n    time.sleep(0.05)\n"
        "os.kill(os.getpid(), 9)"
    )
    assert recorder.run(text).returncode == -signal.SIGKILL
    (process,) = recorder.processes()
    assert not process.has_end
    assert 25 <= len(recorder.opened()) <= 40
    assert "1 of them did not end by themselves" in recorded_run.summary(recorder.recording)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_have_recordings_of_their_own(recorder: Recorder, method: str) -> None:
    text = (
        "import multiprocessing\n"
        "def work(number):\n    return len(open(f'{number}.bin', 'wb').name)\n"
        "if __name__ == '__main__':\n"
        f"    with multiprocessing.get_context('{method}').Pool(2) as pool:\n"
        "        print(pool.map(work, range(4)))\n        pool.close()\n        pool.join()\n"
    )
    assert recorder.run(text).stdout == "[5, 5, 5, 5]\n"
    by_process = {process.process.process: set(process.files.values()) for process in recorder.processes()}
    names = [Path(path).name for files in by_process.values() for path in files]
    assert {name for name in names if name.endswith(".bin")} == {f"{number}.bin" for number in range(4)}
    assert len(by_process) >= 3


def test_threads_record_every_open(recorder: Recorder) -> None:
    text = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def work(number):\n    open(f'{number}.bin', 'wb').close()\n"
        "with ThreadPoolExecutor(8) as pool:\n    list(pool.map(work, range(3000)))\n"
    )
    assert recorder.run(text).returncode == 0
    assert sorted(name for name in recorder.opened() if name.endswith(".bin")) == sorted(
        f"{n}.bin" for n in range(3000)
    )


def test_anonymous_recordings_have_no_names(recorder: Recorder) -> None:
    secret = recorder.folder / "patient-4711.csv"
    secret.write_text("content-4712")
    done = recorder.run(f"print(open({str(secret)!r}).read())", is_anonymous=True, TOKEN="token-4713")
    assert done.stdout == "content-4712\n"
    text = "".join(process.path.read_text() for process in recorder.processes())
    assert not [word for word in ("4711", "4712", "4713", str(recorder.folder)) if word in text]
    assert ".csv" in text


def test_content_arguments_and_variables_are_not_stored(recorder: Recorder) -> None:
    (recorder.folder / "data.csv").write_text("content-4712")
    done = recorder.run("import sys\nprint(open('data.csv').read(), sys.argv)", TOKEN="token-4713")
    assert done.returncode == 0
    text = "".join(process.path.read_text() for process in recorder.processes())
    assert "data.csv" in text
    assert not [word for word in ("content-4712", "token-4713", "TOKEN") if word in text]


def test_a_folder_that_takes_no_events_ends_the_recording_alone(recorder: Recorder) -> None:
    done = recorder.run(_READS, DLIO_HPC_RECORD="/proc/nowhere")
    assert (done.returncode, done.stdout) == (0, "5000\n")
    assert "the recording of process" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_full_recording_counts_what_is_frequent(recorder: Recorder) -> None:
    program = (
        "from dlio_recorder import recording\nrecording._ROOM = 20_000\n"
        "for n in range(3000):\n    open('a.bin', 'wb').close()\n"
    )
    assert recorder.run(program).returncode == 0
    (process,) = recorder.processes()
    listed = _kinds(process).count("open")
    counted = sum(event.values[0]["open"][0] for event in process.events if event.kind == "counts")
    assert listed + counted == 3000
    assert 0 < listed < 1500
    assert process.path.stat().st_size < 60_000
    assert any("the recording was full: open" in fault for fault in process.faults)


def test_a_program_that_the_recorder_cannot_follow_is_noted(recorder: Recorder) -> None:
    run = "subprocess.run([sys.executable, '-c', 'pass']"
    text = f"import subprocess, sys\n{run}, env={{}})\n{run})"
    assert recorder.run(text).returncode == 0
    children = [
        event.values[1] for process in recorder.processes() for event in process.events if event.kind == "child"
    ]
    assert children == [0, 1]
    assert len(recorder.processes()) == 2


def test_a_library_that_fails_while_it_is_imported_fails_as_before(recorder: Recorder) -> None:
    package = recorder.folder / "h5py"
    (package / "_hl").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "_hl/__init__.py").write_text("")
    (package / "_hl/dataset.py").write_text("raise ValueError('broken library')")
    done = recorder.run("import h5py._hl.dataset")
    assert done.returncode == 1
    assert "ValueError: broken library" in done.stderr
    (package / "_hl/dataset.py").write_text("value = 3")  # of a version that the recorder does not know
    done = recorder.run("import h5py._hl.dataset as part\nprint(part.value)")
    assert (done.returncode, done.stdout) == (0, "3\n")
    assert "h5py._hl.dataset is not recorded" in done.stderr


_ARRAYS = """
import pickle
import h5py
import numpy as np
np.save("a.npy", np.arange(600, dtype="f8").reshape(100, 6))
np.savez("b.npz", x=np.ones((50, 4), "f4"), y=np.zeros(3))
with h5py.File("c.h5", "w") as file:
    file.create_dataset("x", data=np.arange(1200).reshape(40, 30), chunks=(8, 30), compression="gzip")
archive = np.load("b.npz")
print(np.load("a.npy").sum(), archive["y"].sum(), archive["x.npy"].sum(), np.load("a.npy", mmap_mode="r")[3].sum())
with h5py.File("c.h5") as file:
    print(file["x"][4:12].sum(), file["x"][7].sum())
assert pickle.loads(pickle.dumps(np.load)) is np.load
print(type(np.__loader__).__name__, type(h5py._hl.dataset.__spec__.loader).__name__)
"""


def test_reads_of_arrays_are_recorded_and_their_results_unchanged(recorder: Recorder) -> None:
    done = recorder.run(_ARRAYS)
    plain = subprocess.run(
        [sys.executable, "program.py"], cwd=recorder.folder, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == (plain.stdout, plain.stderr)
    (process,) = recorder.processes()
    reads = [event.values for event in process.events if event.kind == "read"]
    listed = [(library, Path(process.files[file]).name, size, rows) for library, _, file, size, rows, _ in reads]
    assert listed == [
        ("numpy.load", "a.npy", 4800, 100), ("numpy.npz", "b.npz", 24, 3), ("numpy.npz", "b.npz", 800, 50),
        ("h5py", "c.h5", 1920, 8), ("h5py", "c.h5", 240, 30),
    ]  # fmt: skip
    assert [read[5] for read in reads[1:]] == [[1, None, None], [0, None, None], [0, 4, 8], [0, 7, 1]]
    (array,) = [event.values for event in process.events if event.kind == "array"]
    assert array[2:] == ([40, 30], 8, [8, 30], "gzip", "int64")
    assert [event.values[2] for event in process.events if event.kind == "map"] == [4800]
    assert not process.faults


def test_a_recording_of_another_version_is_refused(recorder: Recorder) -> None:
    recorder.run(_READS)
    (process,) = recorder.processes()
    head, *lines = process.path.read_text().splitlines()
    process.path.write_text("\n".join([json.dumps(json.loads(head) | {"version": 99}), *lines]))
    with pytest.raises(InvalidRun, match="version 99"):
        recorder.processes()
    process.path.write_text("\n".join([head, *lines[:2], '[0.5,"open",']))
    (torn,) = recorder.processes()
    assert torn.faults == ["1 torn line: a process was killed while it wrote, or the file is not from the recorder"]


def test_a_second_recording_does_not_mix_with_the_first(recorder: Recorder) -> None:
    with pytest.raises(ConfigError, match="has a recording already"):
        recorded_run.prepare(recorder.recording)
    with pytest.raises(ConfigError, match="colon"):
        recorded_run.prepare(recorder.folder / "a:b")


def _record(folder: Path, *command: str, **keys: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dlio_hpc", "record", *command], cwd=folder, capture_output=True, text=True, check=False,
        timeout=60, **keys,
    )  # fmt: skip


def test_the_verb_ends_as_the_program_does(tmp_path: Path) -> None:
    done = _record(tmp_path, "-o", "r", "--", sys.executable, "-c", "print('text'); raise SystemExit(5)")
    assert (done.returncode, done.stdout) == (5, "text\n")
    assert done.stderr.startswith("recorded 1 process in ")
    killed = _record(tmp_path, "--output", "k", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert killed.returncode == -9
    absent = _record(tmp_path, "-o", "n", "no-such-program")
    assert absent.returncode == 2
    assert "cannot run no-such-program: it is not in PATH" in absent.stderr
    assert not (tmp_path / "n").exists()
    shell = _record(tmp_path, "-o", "s", "--", "sh", "-c", "exit 3")
    assert shell.returncode == 3
    assert "nothing was recorded" in shell.stderr


def test_variables_switch_recording_on_in_a_job_script(tmp_path: Path) -> None:
    script = (
        f'eval "$({sys.executable} -m dlio_hpc record -o "my recording" --print)"\n'
        f'{sys.executable} -c \'open("a.bin", "wb")\'\n'
    )
    subprocess.run(["sh", "-c", script], cwd=tmp_path, check=True)
    (process,) = recording_files.load(tmp_path / "my recording")
    assert "open" in _kinds(process)


def test_signals_of_the_batch_system_reach_the_program(tmp_path: Path) -> None:
    text = (
        "import signal, sys, time\nsignal.signal(15, lambda *_: sys.exit(42))\n"
        "print('ready', flush=True)\ntime.sleep(30)"
    )
    with subprocess.Popen(
        [sys.executable, "-m", "dlio_hpc", "record", "-o", "r", sys.executable, "-c", text], cwd=tmp_path,
        stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGTERM)
        assert child.wait(timeout=30) == 42


@pytest.mark.parametrize("given", [":/elsewhere", "/elsewhere:", ":", "", "/a::/b"])
def test_an_empty_entry_of_pythonpath_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("PYTHONPATH", given)
    made = recorded_run.variables(tmp_path, False)["PYTHONPATH"]
    assert made == f"{tmp_path}/recorder/start" + (f":{given}" if given else "")
    monkeypatch.setenv("PYTHONPATH", made)
    assert recorded_run.variables(tmp_path, False)["PYTHONPATH"] == made


_SAYS = (sys.executable, "-c", "print('text')")


def test_the_verb_runs_without_stderr(tmp_path: Path) -> None:
    done = _record(tmp_path, "-o", "r", *_SAYS, preexec_fn=lambda: os.close(2))
    assert (done.returncode, done.stdout) == (0, "text\n")


def test_the_verb_runs_below_a_caller_that_ignores_the_end_of_children(tmp_path: Path) -> None:
    done = _record(tmp_path, "-o", "r", *_SAYS, preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert (done.returncode, done.stdout) == (0, "text\n")


def test_the_process_that_prints_the_summary_keeps_no_file_of_the_caller_open(tmp_path: Path) -> None:
    """A lock of the caller would last until the summary, and longer than the program needs it."""
    reader, writer = os.pipe()
    program = f"import os, time; os.close({writer}); time.sleep(30)"
    with subprocess.Popen(
        [sys.executable, "-m", "dlio_hpc", "record", "-o", "r", sys.executable, "-c", program], cwd=tmp_path,
        pass_fds=[writer], stderr=subprocess.DEVNULL,
    ) as child:  # fmt: skip
        os.close(writer)
        assert select.select([reader], [], [], 20)[0] == [reader]
        child.kill()
    os.close(reader)


def test_the_shell_runs_a_script_without_a_line_for_its_interpreter(tmp_path: Path) -> None:
    (tmp_path / "job").write_text('echo "$1"; exit 3\n')
    (tmp_path / "job").chmod(0o700)
    done = _record(tmp_path, "-o", "r", "./job", "text")
    assert (done.returncode, done.stdout) == (3, "text\n"), done.stderr


# Programs that see what a recorder does to them: what a recorder asks of their objects, wraps, or writes.
_SENSITIVE = {
    "indexes that are there once": """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.tensor(float(index))
def batches():
    yield iter([0, 1])
    yield map(int, "23")
loader = torch.utils.data.DataLoader(Data(), batch_sampler=batches())
print([batch.tolist() for batch in loader])
""",
    "a stream whose length is counted by reading it": """
import torch
class Lines(torch.utils.data.IterableDataset):
    def __init__(self): self.source = iter(range(6))
    def __iter__(self): return self.source
    def __len__(self): return sum(1 for _ in self.source)
print([batch.tolist() for batch in torch.utils.data.DataLoader(Lines(), batch_size=2)])
""",
    "a batch with attributes that come into being": """
import torch
class Auto(dict):
    def __getattr__(self, key):
        if key.startswith("__"): raise AttributeError(key)
        return self.setdefault(key, Auto())
class Data(torch.utils.data.Dataset):
    def __len__(self): return 2
    def __getitem__(self, index): return Auto(x=index)
for batch in torch.utils.data.DataLoader(Data(), batch_size=None): print(sorted(batch))
""",
    "functions that are pickled": """
import pickle
import numpy, pandas, pyarrow.parquet, torch
table = pyarrow.parquet.read_table
for function in (pandas.read_csv, pandas.read_parquet, table, numpy.load, numpy.loadtxt, torch.save):
    print(pickle.loads(pickle.dumps(function)) is function)
""",
    "functions that have versions for a class of arrays": """
import numpy as np
HANDLED = {np.save: lambda *rest: "saved", np.savez: lambda *rest: "saved together"}
class Array:
    def __array_function__(self, function, types, arguments, keys): return HANDLED[function](*arguments, **keys)
print(np.save("x.npy", Array()), np.savez("x.npz", Array()))
""",
    "warnings that are about a line of the program": """
import warnings
import numpy as np
open("empty.txt", "w").close()
warnings.filterwarnings("error", module="__main__")
try:
    np.loadtxt("empty.txt")
except UserWarning:
    print("an error, as asked for")
""",
    "a limit on the size of files": """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
open("there", "w").close()
for number in range(3000):
    open("there").close()
print("done")
""",
    "a data file with the number of stderr": """
import os, shutil
os.close(2)
data = os.open("data.bin", os.O_CREAT | os.O_RDWR)
shutil.rmtree("recording/processes", ignore_errors=True)
os.write(data, b"DATA")
for number in range(600):
    open("data.bin").close()
os.lseek(data, 0, 0)
print(data, os.read(data, 1000))
""",
    "a batch that is asked for its class": """
import torch
class Lazy:
    @property
    def __class__(self):
        print("asked")
        return dict
print([type(batch).__name__ for batch in torch.utils.data.DataLoader([1, 2], collate_fn=lambda items: Lazy())])
""",
    "a dataset whose length PyTorch does not ask for": """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): print("counts ten million records"); return 4
    def __getitem__(self, index): return torch.tensor(float(index))
for keys in ({"batch_sampler": [[0, 1], [2, 3]]}, {"sampler": torch.utils.data.SubsetRandomSampler([2])}):
    print([batch.tolist() for batch in torch.utils.data.DataLoader(Data(), **keys)])
""",
    "a sampler that does not answer": """
import torch
class Sampler:
    def __iter__(self): return iter([0])
    def __len__(self): return 1
    @property
    def num_replicas(self): raise LookupError("unknown")
    @property
    def shuffle(self): print("asked")
    def __getattr__(self, name):
        print("asked for", name)
        raise AttributeError(name)
print([batch.tolist() for batch in torch.utils.data.DataLoader([1], sampler=Sampler())])
""",
    "names of the arguments of a function": """
import inspect
import numpy, pandas, torch
for function in (pandas.read_csv, numpy.load, numpy.loadtxt, torch.save, torch.utils.data.DataLoader.__iter__):
    print(inspect.getfullargspec(function), inspect.signature(function))
""",
    "warnings of pandas that are about a line of the program": """
import warnings
import pandas
with open("mixed.csv", "w") as file:
    file.write("a\\n" + "1\\n" * 600000 + "x\\n" * 600000)
with warnings.catch_warnings(record=True) as caught:
    pandas.read_csv("mixed.csv")
    print([len(part) for part in pandas.read_csv("mixed.csv", chunksize=2000000)])
print([(warning.category.__name__, warning.filename == __file__, warning.lineno) for warning in caught])
""",
    "an object that comes out of a pickle": """
import pickle
import pandas
class Auto(dict):
    def __getattr__(self, key):
        if key.startswith("__"): raise AttributeError(key)
        return self.setdefault(key, Auto())
pickle.dump(Auto(rate=1), open("auto.pkl", "wb"))
print(dict(pandas.read_pickle("auto.pkl")))
""",
    "functions that a test replaces": """
import json, os, time
from unittest import mock
with mock.patch("builtins.open") as opened, mock.patch("json.dumps") as dumps, mock.patch("os.path.getsize") as size:
    for number in range(600):
        os.close(os.open(f"{number}.bin", os.O_CREAT | os.O_WRONLY))
        os.close(os.open(f"{number}.bin", os.O_RDONLY))
    print(opened.call_count, dumps.call_count, size.call_count)
""",
    "a loader that is copied": """
import copy, torch
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(4.0)), batch_size=2)
list(loader)
other = copy.copy(loader)
print([len(batch) for batch in other], [len(batch) for batch in loader])
""",
}  # fmt: skip


@pytest.mark.parametrize("name", _SENSITIVE)
def test_a_program_does_the_same_under_the_recorder(recorder: Recorder, name: str) -> None:
    for library in ("torch", "pandas", "pyarrow"):
        if f"{library}" in _SENSITIVE[name]:
            pytest.importorskip(library)
    script = recorder.folder / "alone.py"
    script.write_text(_SENSITIVE[name])
    (recorder.folder / "alone").mkdir()
    alone = subprocess.run(
        [sys.executable, script], cwd=recorder.folder / "alone", capture_output=True, text=True, check=False
    )
    recorded = recorder.run(_SENSITIVE[name])
    assert alone.returncode == 0, alone.stderr
    assert (recorded.returncode, recorded.stdout) == (alone.returncode, alone.stdout)


# Programs in which an exception ends each of 100 loops that open files, as text of a module.
_INTERRUPTED = {
    "a handler of signals": "def late(*_): raise Late",
    "a handler that restores the one before": """
def late(*_):
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    raise Late
""",
    "an object that inherits its call": """
class Base:
    def __call__(self, number, frame): raise TimeoutError("late") from None
class Handler(Base): pass
late, Late = Handler(), TimeoutError
""",
    "another thread": """
def late(*_): pass
def begin():
    send = ctypes.pythonapi.PyThreadState_SetAsyncExc
    own = ctypes.c_ulong(threading.get_ident())
    threading.Timer(0.003, lambda: send(own, ctypes.py_object(Late))).start()
""",
    "another thread, with an exception of Python": """
Late = TimeoutError
def late(*_): pass
def begin():
    send = ctypes.pythonapi.PyThreadState_SetAsyncExc
    own = ctypes.c_ulong(threading.get_ident())
    threading.Timer(0.003, lambda: send(own, ctypes.py_object(Late))).start()
""",
}


@pytest.mark.parametrize("name", _INTERRUPTED)
def test_an_exception_that_arrives_while_the_recorder_works_reaches_the_program(recorder: Recorder, name: str) -> None:
    done = recorder.run(f"""
import ctypes, os, signal, threading, time
class Late(Exception): pass
def begin():
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 0.0005)
{_INTERRUPTED[name]}
open("there", "w").close()
lost = 0
for number in range(100):
    try:
        begun = time.monotonic()
        begin()
        while time.monotonic() - begun < 0.2:
            os.close(os.open("there", os.O_RDONLY))  # an exception in the end of a file object is lost in any case
        lost += 1
    except Late:
        pass
print(lost)
open("last.bin", "w").close()
""")
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert [process.faults for process in recorder.processes()] == [[]]
    assert recorder.opened()[-1] == "last.bin"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of a file that was just opened
def test_the_turn_to_write_is_given_back_when_an_exception_arrives(tmp_path: Path) -> None:
    class Late(Exception):
        """Raised after any call of a C function in a method of the writer, in the place of a signal."""

    writer = EventWriter(str(tmp_path), "host", lambda begun: {"begun": begun})
    calls = itertools.count()

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "c_return" and frame.f_code.co_filename == recording.__file__ and next(calls) == place:
            sys.setprofile(None)
            raise Late

    for place in range(60):
        calls = itertools.count()
        writer.add("step", place)
        sys.setprofile(profile)
        with contextlib.suppress(Late):
            writer.flush()
        sys.setprofile(None)
    writer.end()
    (path,) = tmp_path.rglob("*.jsonl")
    events = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    assert [event[2] for event in events if event[1] == "step"] == list(range(60))
    assert "end" in [event[1] for event in events]


def test_addresses_texts_and_values_are_not_stored(recorder: Recorder) -> None:
    """An address may have a password, and what a program raises, or gives tf.data, may be content."""
    pytest.importorskip("pandas")
    recorder.run("""
import pandas
class Odd:
    def __fspath__(self): raise ValueError("SECRET1")
for target in ("s3://me:SECRET2@store/x.csv?token=SECRET3", "https://store/x.csv?key=SECRET4", Odd(), "a\\nSECRET5"):
    try:
        pandas.read_csv(target)
    except Exception as fault:
        print(type(fault).__name__)
""")
    (process,) = recorder.processes()
    assert "SECRET" not in process.path.read_text()


def test_of_what_a_program_opens_only_files_are_stored(recorder: Recorder) -> None:
    """Programs try whether a text is a path, and some libraries open an address as if it were one."""
    recorder.run("""
import os
import numpy as np
def lower(text): return os.open(text, os.O_RDONLY)
def write(text): return open("no/" + text, "w")
texts = "https://me:SECRET1@store/x?token=SECRET2", '{"name": "SECRET3"}', "password=SECRET4 --host x", "a\\0SECRET5"
for text in texts:
    for function in (open, np.load, np.fromfile, lower, write):
        try:
            function(text)
        except (OSError, ValueError):
            pass
os.makedirs("https:/me:SECRET6@store")
open("https://me:SECRET6@store/x", "w").close()
open("there", "w").close()
open("there").close()
""")
    (process,) = recorder.processes()
    assert "SECRET" not in process.path.read_text()
    assert (process.faults, recorder.opened()) == ([], ["there", "there"])


@pytest.mark.parametrize("options", [["-m", "tool"], ["-mtool"], ["-X", "dev", "-um", "tool"]])
def test_of_the_arguments_of_a_module_none_is_stored(recorder: Recorder, options: list[str]) -> None:
    (recorder.folder / "tool.py").write_text("print('done')")
    subprocess.run(
        [sys.executable, *options, "-m", "SECRET"], cwd=recorder.folder, env=recorder.environment(), check=True,
        capture_output=True,
    )  # fmt: skip
    (process,) = recorder.processes()
    assert process.process.script == "-m tool"
    assert "SECRET" not in process.path.read_text()


def test_an_anonymous_recording_has_no_name_of_a_node_a_class_or_a_program(recorder: Recorder) -> None:
    pytest.importorskip("torch")
    recorder.run(
        """
import subprocess, torch
class SecretStudy(torch.utils.data.Dataset):
    def __len__(self): return 2
    def __getitem__(self, index): return index
subprocess.run(["/bin/true"])
list(torch.utils.data.DataLoader(SecretStudy()))
class SecretFault(Exception): pass
class SecretOptimizer(torch.optim.SGD): pass
weight = torch.nn.Parameter(torch.zeros(1))
weight.grad = torch.ones(1)
SecretOptimizer([weight], 0.1).step()
import os, h5py
os.mkdir("john.Secret")
open("john.Secret/data.csv", "w").close()
with h5py.File("fields.h5", "w") as file:
    file.create_dataset("x", (4,), dtype=[("SecretField", "f4")])
    file["x"][0:2]
class Part(torch.Tensor):
    @property
    def shape(self): raise SecretFault
list(torch.utils.data.DataLoader([1], collate_fn=lambda items: torch.ones(1).as_subclass(Part)))
""",
        is_anonymous=True,
    )
    (path,) = recorder.recording.glob("processes/*/*.jsonl")
    text = path.read_text()
    for name in ("true", os.uname().nodename, "program"):
        assert f'"{name}' not in text
    assert "Secret" not in text
    assert '"loader",1' in text
    assert path.parent.name != os.uname().nodename
    assert recording_files.load(recorder.recording)[0].process.script.endswith(".py")


def test_streams_are_known_by_the_file_that_they_lead_to(recorder: Recorder) -> None:
    """A member of an archive may have the name of a file, and a compressed stream tells what it was given."""
    pytest.importorskip("torch")
    recorder.run("""
import gzip, io, zipfile
import numpy as np
import torch
np.save("x.npy", np.zeros(10))
with zipfile.ZipFile("all.zip", "w") as archive:
    archive.write("x.npy")
for stream in (zipfile.ZipFile("all.zip").open("x.npy"), io.BufferedReader(zipfile.ZipFile("all.zip").open("x.npy"))):
    np.load(stream)
np.load(open("x.npy", "rb"))
with gzip.open("state.gz", "wb") as file:
    torch.save(torch.zeros(100_000), file)
with open("state", "wb") as file:
    torch.save(torch.zeros(10), file)
""")
    (process,) = recorder.processes()
    reads = [event.values[2] for event in process.events if event.kind == "read"]
    assert [None if number is None else Path(process.files[number]).name for number in reads] == [None, None, "x.npy"]
    compressed, plain = [event.values for event in process.events if event.kind == "save"]
    assert (Path(process.files[compressed[2]]).name, compressed[3]) == ("state.gz", None)
    assert plain[3] == (recorder.folder / "state").stat().st_size
    assert process.faults == []


def test_batches_of_unknown_size_are_recorded(recorder: Recorder) -> None:
    pytest.importorskip("torch")
    recorder.run("""
import torch
def collate(items): return torch.stack(items).to_sparse()
class Odd(torch.Tensor):
    @property
    def nbytes(self): raise LookupError("odd")
    @property
    def shape(self): raise LookupError("odd")
for function in (collate, lambda items: torch.stack(items).as_subclass(Odd)):
    loader = torch.utils.data.DataLoader([torch.ones(8) for _ in range(8)], batch_size=4, collate_fn=function)
    print(len(list(loader)))
""")
    (process,) = recorder.processes()
    batches = [event.values[2:] for event in process.events if event.kind == "batch"]
    assert process.faults == []
    assert batches == [(4, 0)] * 2 + [(None, 0)] * 2


def test_a_ragged_batch_of_tensorflow_is_recorded(recorder: Recorder) -> None:
    pytest.importorskip("tensorflow")
    recorder.run("""
import tensorflow as tf
rows = tf.data.Dataset.range(8).map(lambda number: tf.range(number)).ragged_batch(4)
print(len(list(rows)))
sparse = tf.data.Dataset.range(8).map(lambda number: tf.sparse.eye(3)).batch(4)
print(len(list(sparse)))
""")
    (process,) = recorder.processes()
    assert [event.values[2:] for event in process.events if event.kind == "batch"] == [(4, 0)] * 4
    assert process.faults == []


def test_a_worker_in_a_thread_does_not_end_the_recording(recorder: Recorder) -> None:
    pytest.importorskip("torch")
    done = recorder.run("""
import threading
import torch.utils.data._utils.worker as worker
thread = threading.Thread(target=lambda: worker._worker_loop(None))
threading.excepthook = lambda fault: None
thread.start()
thread.join()
open("after.bin", "w").close()
""")
    assert done.returncode == 0, done.stderr
    (process,) = recorder.processes()
    assert "worker" not in _kinds(process)
    assert recorder.opened() == ["after.bin"]


_PERSISTENT = """
import os, time, torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        open(f"{index}.bin", "rb").close()
        if index == 7 and "STUCK" in os.environ:
            open("stuck", "wb").close()
            time.sleep(100)
        return torch.zeros(4)
for index in range(16):
    open(f"{index}.bin", "wb").close()
loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, persistent_workers=True)
for epoch in range(2):
    for batch in loader:
        if "STUCK" in os.environ:
            break
    if "STUCK" in os.environ:
        while not os.path.exists("stuck"):
            time.sleep(0.01)
        break
"""


def _with_ends(recorder: Recorder, program: str, others: int, workers: int) -> list[ProcessRecording]:
    """Record a program, and return its processes. All of them must have ended by themselves. others: number of
    processes that are no workers of loaders.
    """
    done = recorder.run(program)
    assert (done.returncode, done.stderr) == (0, "")
    processes = recorder.processes()
    assert [process.has_end for process in processes] == [True] * (others + workers)
    assert sum("worker" in _kinds(process) for process in processes) == workers
    return processes


@pytest.mark.framework
def test_persistent_workers_end_by_themselves_and_lose_nothing(recorder: Recorder) -> None:
    """Nothing holds a worker when the program exits, so multiprocessing would kill it."""
    pytest.importorskip("torch")
    processes = _with_ends(recorder, _PERSISTENT, 1, 2)
    reads = [event for process in processes for event in process.events if event.kind == "open" and not event.values[1]]
    assert len(reads) == 32
    assert "did not end" not in recorded_run.summary(recorder.recording)


_OTHER_PROCESSES = """
import multiprocessing, torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        open(f"{index}.bin", "rb").close()
        return torch.zeros(4)
def batches(count):
    loader = torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=count, persistent_workers=True)
    return iter(loader)
for index in range(16):
    open(f"{index}.bin", "wb").close()
mine = batches(2)
next(mine)
other = multiprocessing.get_context("fork").Process(target=lambda: list(batches(1)))
other.start()
other.join()
assert other.exitcode == 0
assert len(list(mine)) == 7
"""


@pytest.mark.framework
def test_the_workers_of_another_process_go_on(recorder: Recorder) -> None:
    """A process ends its own workers at its exit, and not those of its parent."""
    pytest.importorskip("torch")
    _with_ends(recorder, _OTHER_PROCESSES, 2, 3)


@pytest.mark.framework
def test_a_worker_that_is_busy_at_the_exit_is_killed_as_without_the_recorder(recorder: Recorder) -> None:
    pytest.importorskip("torch")
    begin = time.monotonic()
    assert recorder.run(_PERSISTENT, STUCK="1").returncode == 0
    assert time.monotonic() - begin < 60
    assert sorted(process.has_end for process in recorder.processes()) == [False, True, True]


def test_data_in_shared_memory_and_beside_an_environment_are_recorded(recorder: Recorder) -> None:
    name = f"/dev/shm/dlio-hpc-{os.getpid()}.bin"
    recorder.run(f"""
open({name!r}, "wb").close()
open({name!r}).close()
import os, sys
sys.prefix = os.getcwd()
os.remove({name!r})
""")
    assert recorder.opened() == [Path(name).name] * 2


def test_a_full_recording_has_no_number_of_a_file_that_it_does_not_name(recorder: Recorder) -> None:
    done = recorder.run("""
import sys
recording = sys.modules["dlio_recorder.recording"]
recording._ROOM = 2000
for number in range(400):
    open(f"file-{number}.bin", "w").close()
""")
    assert (done.returncode, done.stderr) == (0, "")
    (process,) = recorder.processes()
    assert [fault for fault in process.faults if "torn" in fault] == []
    assert {event.values[0] for event in process.events if event.kind == "written"} <= set(process.files)


def test_a_loader_that_a_thread_iterates_is_noted(recorder: Recorder) -> None:
    pytest.importorskip("torch")
    recorder.run("""
import threading, torch
def use(loader):
    for batch in loader: pass
loader = torch.utils.data.DataLoader([torch.zeros(3)] * 8, batch_size=4)
use(loader)
thread = threading.Thread(target=use, args=(loader,))
thread.start(); thread.join()
""")
    (process,) = recorder.processes()
    kinds = [event.kind for event in process.events]
    assert kinds.count("batch") == 4
    (noted,) = [event for event in process.events if event.kind == "unseen"]
    assert noted.values[0] == "thread"
    assert kinds.index("unseen") > kinds.index("end_of_pass")
