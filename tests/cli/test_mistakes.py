"""Typical mistakes of users, and the message that each must give: where it is, what was found, and what would do.

A row has a name, a command, and the parts that its output must have. The table is a benchmark of friendliness: if a
message is not good enough, the program changes, and not the row. A new key or option brings its typical mistake.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import click
import h5py
import numpy as np
import pytest

from dlio_hpc.base import own_commands
from dlio_hpc.cli import verbs
from dlio_hpc.config import site, workload
from dlio_hpc.dataset import token_index
from dlio_hpc.files import rundir
from tests.conftest import runner
from tests.support import planning, recordings, studies

Files = Mapping[str, str | bytes]


class Mistake(NamedTuple):
    """A command and what it must say. command: may begin with environment variables. says: parts of the output. files:
    contents by name, in the folder of the command. code: exit code, as in docs/reference/exit-codes.md.
    """

    name: str
    command: str
    says: tuple[str, ...]
    files: Files = MappingProxyType({})
    code: int = 2


W = "name: w\ndataset: {format: npz, files: 8, samples_per_file: 4, sample: {bytes: 64 KiB}}\n"
SITE = "name: mine\nscheduler: slurm\nlauncher: {kind: srun, command: srun}\nranks_per_node: 4\nwalltime: 1:00:00\n"
STUDY = "name: s\nworkload: demo\nparts:\n  a:\n    sweep: {reader.read_threads: [1, 2]}\n"
DEMO, DRY = "dlio-submit demo -s local --dry-run ", "dlio-submit w.yaml -s local --dry-run"
MACHINE = "dlio-submit demo -s perlmutter -d . --dry-run "
OWN = "dlio-submit demo -s site.yaml -d . --dry-run"
WHOLE = "use a whole number of at least 1"
NPZ = b"PK\x05\x06" + bytes(18)


def _w(text: str) -> Files:
    return {"w.yaml": text}


def _site(text: str) -> Files:
    return {"site.yaml": SITE + text}


def _criteria(text: str) -> Files:
    return {"c.yaml": f"name: c\ncriteria:\n  io: {{{text}}}\n"}


NAMES = (
    Mistake(
        "workload misspelt", "dlio-submit cosmflow", ("no workload 'cosmflow'", "did you mean 'cosmoflow'?", "demo")
    ),
    Mistake("workload in capitals", "dlio-submit Demo", ("no workload 'Demo'", "did you mean 'demo'?")),
    Mistake("study as a workload", "dlio-submit fig11", ("'fig11'", "did you mean the study 'fig11'?")),
    Mistake("study misspelt", "dlio-submit --study fig1l", ("no study 'fig1l'", "did you mean 'fig1", "fig11")),
    Mistake("suite misspelt", "dlio-submit --suite nightyl", ("no suite 'nightyl'", "did you mean 'nightly'?")),
    Mistake("site misspelt", "dlio-submit demo -s perlmuter", ("no site 'perlmuter'", "did you mean 'perlmutter'?")),
    Mistake("verb misspelt", "dlio-hpc sumbit demo", ("'sumbit'", "did you mean 'submit'?", "--help")),
    Mistake("study as a verb", "dlio-hpc fig11", ("'fig11'", "did you mean 'dlio-hpc submit --study fig11'?")),
    Mistake("workload as a verb", "dlio-hpc cosmoflow", ("did you mean 'dlio-hpc submit cosmoflow'?",)),
    Mistake("option misspelt", "dlio-submit demo --dryrun", ("'--dryrun'", "'--dry-run'")),
    Mistake("option of srun", "dlio-submit demo --ntasks 4", ("'--ntasks'", "give the ranks of each node with --ppn")),
    Mistake("option of sbatch", "dlio-submit demo --partition debug", ("did you mean '--queue'?",)),
    Mistake("nothing to measure", "dlio-submit -s local", ("give a WORKLOAD", "--study NAME", "--suite NAME")),
    Mistake("workload and suite", "dlio-submit demo --suite nightly", ("demo and nightly", "give a WORKLOAD, or")),
    Mistake("two workloads", "dlio-submit demo cosmoflow", ("cosmoflow",)),
    Mistake(
        "keys of a document as text",
        "dlio-hpc schema --json-of report --text",
        ("--text", "'workload'", "not of --json-of"),
    ),
    Mistake("schema misspelt", "dlio-hpc schema workloads", ("found 'workloads'", "did you mean 'workload'?", "site")),
    Mistake("shell that is not known", "dlio-hpc completion csh", ("found 'csh'", "use one of: bash, zsh, fish")),
    Mistake("workload to print", "dlio-hpc workloads demmo", ("no workload 'demmo'", "did you mean 'demo'?")),
    Mistake(
        "profile of a publication", "dlio-hpc similarity theta_8_nodes:fnn x", ("no profile 'fnn'", "ffn", "climate")
    ),
)

OVERRIDES = (
    Mistake("no =", DEMO + "-S reader.batch_size", ("-S reader.batch_size: write key=value",)),
    Mistake("no value", DEMO + "-S reader.batch_size=", ("-S reader.batch_size=: write key=value",)),
    Mistake("colon for =", DEMO + "-S reader.batch_size:4", ("-S reader.batch_size:4: write key=value",)),
    Mistake(
        "text for a number", DEMO + "-S reader.batch_size=four", (f"reader.batch_size: found text 'four'; {WHOLE}",)
    ),
    Mistake("number in quotes", DEMO + """-S 'reader.batch_size="4"'""", (f"found text '4'; {WHOLE}",)),
    Mistake("zero", DEMO + "-S reader.batch_size=0", (f"reader.batch_size: found 0; {WHOLE}",)),
    Mistake("negative", DEMO + "-S dataset.files=-8", (f"dataset.files: found -8; {WHOLE}",)),
    Mistake("fraction", DEMO + "-S reader.batch_size=2.5", (f"reader.batch_size: found 2.5; {WHOLE}",)),
    Mistake("null", DEMO + "-S reader.batch_size=null", (f"reader.batch_size: found null (empty); {WHOLE}",)),
    *(
        Mistake(f"whole number as {value}", DEMO + f"-S dataset.files={value}", (f"{WHOLE}; write {number}",))
        for value, number in {"100_000": 100000, "100,000": 100000, "8.0": 8, "100k": 100000, "010": 10}.items()
    ),
    Mistake(
        "whole number with an exponent",
        DEMO + "-S dataset.files=1e1 -P reader.batch_size=1e0,2e0",
        ("2 points",),
        code=0,
    ),
    Mistake("fraction with an exponent", DEMO + "-S dataset.files=1e-1", (f"found 0.1; {WHOLE}",)),
    Mistake("too large", DEMO + "-S train.epochs=99999999999999999", (f"{WHOLE} and at most 2^53",)),
    Mistake(
        "over the limit",
        DEMO + "-S dataset.compression=gzip -S dataset.level=10",
        ("dataset.level: found 10; use a whole number from 0 to 9 or null",),
    ),
    Mistake("number for text", DEMO + "-S name=7", ("name: found 7; use text",)),
    Mistake("yes", DEMO + "-S reader.direct=yes", ("reader.direct: found text 'yes'; use true or false",)),
    Mistake("number for true", DEMO + "-S reader.shard=1", ("reader.shard: found 1; use true or false",)),
    Mistake(
        "list for a number",
        DEMO + "-S reader.batch_size=[1,2]",
        (
            f"found the list [1, 2]; {WHOLE}",
            "to measure several values: -P reader.batch_size=1,2",
        ),
    ),
    Mistake(
        "-S for -P",
        DEMO + "-S reader.batch_size=1,2",
        (
            f"found text '1,2'; {WHOLE}",
            "to measure several values: -P reader.batch_size=1,2",
        ),
    ),
    Mistake("number for a section", DEMO + "-S reader=4", ("reader: found 4; use a mapping with keys such as loader",)),
    Mistake("key below a value", DEMO + "-S reader.batch_size.max=4", ("reader.batch_size has a value and no keys",)),
    Mistake(
        "unit of a size",
        DEMO + "-S reader.transfer_size=1MiBB",
        ("reader.transfer_size: found '1MiBB'; use a size such as 4096, 256KiB or 1.5 GB",),
    ),
    Mistake("negative size", DEMO + "-S reader.transfer_size=-1MiB", ("found '-1MiB'; use a size such as",)),
    Mistake(
        "unit of a time",
        DEMO + "-S 'compute.time=5 parsecs'",
        (
            "compute.time",
            "found '5 parsecs'; use a duration such as 0.25, 250ms or 2min",
        ),
    ),
    Mistake("negative time", DEMO + "-S compute.time=-1", ("compute.time", "found -1; use a duration such as")),
    Mistake(
        "format misspelt",
        DEMO + "-S dataset.format=hdf",
        ("dataset.format: found 'hdf'; did you mean 'hdf5'? use one of: tfrecord, hdf5, npz",),
    ),
    Mistake("loader by its library", DEMO + "-S reader.loader=torch", ("did you mean 'pytorch'?", "native")),
    Mistake("mode that does not exist", DEMO + "-S reader.mode=fast", ("found 'fast'; use one of: posix, framework",)),
    Mistake("plural", DEMO + "-S reader.transfer_sizes=1MiB", ("'transfer_sizes'; did you mean 'transfer_size'?",)),
    Mistake("key without its section", DEMO + "-S batch_size=8", ("'batch_size'; did you mean 'reader.batch_size'",)),
    Mistake(
        "key of another section",
        DEMO + "-S train.shuffle=true",
        ("train: unknown key", "did you mean 'reader.shuffle'"),
    ),
    Mistake(
        "key of dlio_benchmark",
        DEMO + "-S dataset.num_files_train=8",
        ("'num_files_train'; did you mean 'files'?", "dlio-hpc schema workload --text lists all keys"),
    ),
    Mistake("key of the site", DEMO + "-S layout.stripe_count=8", ("'layout'; did you mean 'site.layout'?",)),
    Mistake("section site misspelt", DEMO + "-S sites.depth=2", ("'sites'; did you mean 'site'?",)),
    Mistake("key of the site misspelt", DEMO + "-S site.ranks_per_nodes=2", ("did you mean 'ranks_per_node'?",)),
    Mistake("nodes as a key", DEMO + "-S nodes=4", ("'nodes'; did you mean the option --nodes?",)),
    Mistake(
        "bracket that is not closed",
        DEMO + "-S 'dataset.sample.shape=[512, 512'",
        ("-S dataset.sample.shape=[512, 512: not valid YAML: a list is not closed",),
    ),
    Mistake(
        "name of an auxiliary file",
        DEMO + "-S 'dataset.auxiliary_files=[{name: a/b, bytes: 1}]'",
        ("dataset.auxiliary_files[0].name: found text 'a/b'; use a name of letters, digits",),
    ),
    Mistake(
        "gzip for raw",
        DEMO + "-S dataset.compression=gzip -S dataset.format=raw",
        (
            "with -S dataset.compression=gzip -S dataset.format=raw",
            "compression=gzip needs format=tfrecord (gzip, zlib) or hdf5 (gzip, lzf)",
            "not raw",
        ),
    ),
    Mistake(
        "chunk for npz", DEMO + "-S dataset.chunk=64KiB", ("chunk is for HDF5 and Zarr; format=npz", "leave chunk null")
    ),
    Mistake(
        "shards of version 2",
        DEMO + "-S dataset.format=zarr -S 'dataset.zarr={version: 2, shard: [4, 512, 512]}'",
        ("shard needs version=3, not 2", "set version: 3"),
    ),
    Mistake(
        "shards that cut chunks",
        DEMO + "-S dataset.format=zarr -S 'dataset.zarr={shard: [1, 500, 512]}'",
        ("zarr.shard: found [1, 500, 512]", "a multiple of a chunk, [1, 512, 512]"),
    ),
    Mistake(
        "zarr keys of another format",
        DEMO + "-S 'dataset.zarr={version: 2}'",
        ("zarr is for format=zarr, not for format=npz", "leave zarr null"),
    ),
    Mistake(
        "zlib in version 3 of Zarr",
        DEMO + "-S dataset.format=zarr -S dataset.compression=zlib",
        ("compression=zlib: version 3 of Zarr has gzip instead", "set compression=gzip"),
    ),
    Mistake("direct in framework mode", DEMO + "-S reader.direct=true -S reader.mode=framework", ("needs mode=posix",)),
    Mistake("columns of npz", DEMO + "-S dataset.columns=[float32]", ("columns", "format=parquet", "leave both null")),
    Mistake("fork for native", DEMO + "-S reader.multiprocessing_context=spawn", ("needs loader=pytorch",)),
    Mistake(
        "ZeRO 2",
        "dlio-submit llama3_8b -s local --dry-run -S checkpoint.zero=2",
        ("checkpoint.zero: found 2; use one of: 0, 1, 3, null",),
    ),
    Mistake(
        "model misspelt",
        "dlio-submit llama3_8b -s local --dry-run -S checkpoint.model=llama3_7b",
        (
            "checkpoint.model: found 'llama3_7b'; did you mean 'llama3_",
            "one of llama3_8b, llama3_70b",
            "or a mapping",
        ),
    ),
    Mistake(
        "more memory than there is",
        DEMO + "-S reader.resize=64TiB",
        (
            "note: the batches that the ranks of a node hold take 5 PiB of memory, but this computer has",
            "reader.resize",
        ),
        code=0,
    ),
    Mistake(
        "fewer ranks than the model",
        "dlio-submit llama3_8b -s local --dry-run --ppn 3",
        ("note: checkpoint.model: 3 of the 8 ranks of checkpoint.parallelism write their part",),
        code=0,
    ),
)

SWEEPS = (
    Mistake("no =", DEMO + "-P reader.read_threads", ("-P reader.read_threads: write key=value,value,...",)),
    Mistake("key misspelt", DEMO + "-P reader.read_thread=1,2", ("'read_thread'; did you mean 'read_threads'?",)),
    Mistake("no section", DEMO + "-P read_threads=1,2", ("did you mean 'reader.read_threads'?",)),
    Mistake(
        "text for a number",
        DEMO + "-P reader.read_threads=1,two",
        (f"reader.read_threads=two: reader.read_threads: found text 'two'; {WHOLE}",),
    ),
    Mistake(
        "range backwards",
        DEMO + "-P reader.read_threads=8..1",
        ("8..1 never ends; write the smaller value first: 1..8",),
    ),
    Mistake(
        "factor of 1", DEMO + "-P reader.read_threads=1..8*1", ("1..8*1 never ends; a factor (*) must be above 1",)
    ),
    Mistake(
        "range from 0 with a factor", DEMO + "-P compute.time=0..8*2", ("0..8*2", "the first value must be above 0")
    ),
    Mistake("range of another program", DEMO + "-P reader.read_threads=1:4", ("'1:4'", "write a range as 1..4")),
    Mistake("a value is missing", DEMO + "-P reader.read_threads=1,,2", ("1,,2: not valid YAML: a value is missing",)),
    Mistake("value given twice", DEMO + "-P reader.read_threads=1,1", ("read_threads=1: the value is given twice",)),
    Mistake(
        "key given twice",
        DEMO + "-P reader.read_threads=1 -P reader.read_threads=2",
        ("give all its values in one list",),
    ),
    Mistake(
        "-P and -S",
        DEMO + "-S reader.read_threads=2 -P reader.read_threads=1,2",
        ("-S reader.read_threads: -P", "leave -S out"),
    ),
    Mistake("key of the site", DEMO + "-P site.depth=1,2", ("-P site.depth=1,2", "set the value with -S")),
    Mistake(
        "--zip of two lengths",
        DEMO + "--zip -P reader.read_threads=1,2 -P reader.batch_size=1,2,4",
        ("--zip needs lists of equal length: reader.read_threads has 2, reader.batch_size has 3",),
    ),
    Mistake("--zip alone", DEMO + "--zip", ("--zip needs at least two options -P",)),
    Mistake("--weak alone", DEMO + "--weak", ("--weak needs several values of --nodes or --ppn",)),
    Mistake("--full alone", DEMO + "--full", ("--full needs --study or --suite",)),
    Mistake(
        "-P for a study",
        "dlio-submit --study fig11 -s local --dry-run -P reader.read_threads=1,2",
        ("change a copy of the file",),
    ),
)

OPTIONS = (
    Mistake("no nodes", DEMO + "-N 0", ("'--nodes': found 0; use whole numbers of at least 1, such as 4",)),
    Mistake("nodes in letters", DEMO + "-N two", ("'--nodes': found text 'two'; use whole numbers",)),
    Mistake("range of nodes", DEMO + "-N 1:4", ("'1:4'", "write a range as 1..4")),
    Mistake("half a rank", DEMO + "--ppn 2.5", ("'--ppn': found 2.5; use whole numbers of at least 1",)),
    Mistake("minutes over 59", DEMO + "-t 1:75", ("'--time': found '1:75'",)),
    Mistake("no time", DEMO + "-t 0", ("'--time': found '0'; use a time limit between a second and a year",)),
    Mistake("half a repeat", DEMO + "--repeat 2.5", ("'--repeat': found '2.5'; use a whole number of at least 1",)),
    Mistake(
        "nights without their unit",
        DEMO + "--nights 3 --every 24",
        ("'--every': found '24'; give the unit, such as 24h",),
    ),
    Mistake("a change in percent", "dlio-hpc estimate demo --detect 5", ("found '5'; use a share such as 90% or 0.9",)),
    Mistake(
        "a power of no change", "dlio-hpc estimate demo --power 90%", ("--power has an effect only with --detect", "5%")
    ),
    Mistake("a time between one night", DEMO + "--every 24h", ("--every", "give --nights 2 or more")),
    Mistake("no repeat", DEMO + "--repeat 0", ("'--repeat': found '0'; use a whole number of at least 1",)),
    Mistake("size in words", DEMO + "--dataset-size big", ("'--dataset-size': found 'big'; use a size such as 4096",)),
    Mistake("size below a sample", DEMO + "--dataset-size 1KiB", ("1 KiB is less than one sample, which has 1 MiB",)),
    Mistake("--generate", DEMO + "--generate yes", ("found 'yes'; use one of: auto, separate, only, never",)),
    Mistake("nodes of a laptop", DEMO + "-N 4", ("--nodes 4: site local allows at most 1 per job",)),
    Mistake(
        "nodes over the queue",
        MACHINE + "-A m1 -N 64",
        ("--nodes 64: queue debug of site perlmutter allows at most 8 per job; use --queue regular",),
    ),
    Mistake(
        "time over the queue",
        MACHINE + "-A m1 -t 2h",
        ("--time 2:00:00: queue debug", "at most 0:30:00", "--queue regular"),
    ),
    Mistake(
        "queue misspelt",
        MACHINE + "-A m1 -q regualr",
        (
            "note: the profile of site perlmutter does not list queue regualr; did you mean 'regular'?",
            "known queues: debug",
        ),
        code=0,
    ),
    Mistake("no account", MACHINE, ("site perlmutter requires an account: --account NAME", "DLIO_HPC_ACCOUNT=NAME")),
    Mistake("no data folder", "dlio-submit demo -s perlmutter -A m1 --dry-run", ("$PSCRATCH/dlio-data", "use --data")),
    Mistake("option for the batch system", DEMO + "-J hold", ("-J hold: -J is --job-option here", "--constraint=cpu")),
    Mistake(
        "more CPUs than a node has",
        MACHINE + "-A m1 --ppn 4 -S site.depth=128",
        ("--ppn 4", "has 256 per node", "site.depth=N"),
    ),
    Mistake("--ab of one folder", DEMO + "--ab data data", ("--ab", "are the same folder")),
    Mistake(
        "--ab and --data", DEMO + "--ab a b -d c", ("--ab already names the folders for datasets; leave --data out",)
    ),
    Mistake("data folder is a file", DEMO + "-d data", ("'--data': data is a file; give a folder",), {"data": ""}),
    Mistake("data folder is a URL", DEMO + "-d s3://bucket", ("s3://bucket is a URL", "mount that storage")),
    Mistake(
        "data folder on a file system without files",
        "dlio-submit demo -s local -d /proc/x",
        (
            "--data /proc/x: cannot create files in /proc",
            "choose another folder",
        ),
        code=6,
    ),
    Mistake(
        "archives that cannot be written",
        "dlio-submit demo -s local -d data --archive /proc/x --wait",
        ("--archive /proc/x: cannot create files in /proc", "choose another folder"),
        code=6,
    ),
    Mistake(
        "runs that cannot be written",
        "dlio-submit demo -s local -d data -o /proc/x --wait",
        ("--runs /proc/x: cannot create files in /proc", "choose another folder"),
        code=6,
    ),
    Mistake(
        "JUnit file that cannot be written",
        "dlio-submit demo -s local -d data --wait --junit /proc/x/cases.xml",
        ("cannot write /proc/x/cases.xml",),
        code=6,
    ),
    Mistake(
        "no launcher",
        "dlio-submit demo -s local -d data -S site.launcher.command=nompi",
        (
            "nompi was not found",
            "pip install mpi4py mpich",
            "launcher.command",
        ),
        code=6,
    ),
    Mistake(
        "no Darshan",
        DEMO + "--darshan",
        ("site local sets no libdarshan.so", "-S site.darshan=/PATH/lib/libdarshan.so"),
    ),
    Mistake(
        "no TensorFlow to profile", DEMO + "--tf-profile", ("add -S reader.loader=tensorflow, or omit --tf-profile",)
    ),
    Mistake(
        "no space",
        "dlio-hpc check demo -s local -d . --no-launch -S dataset.files=1000000000 -S train.steps=1",
        (
            "fault  space",
            "needs 3.8 PiB, but",
            "choose another --data or a smaller --dataset-size",
        ),
    ),
    Mistake(
        "layout on a file system that is not Lustre",
        "dlio-hpc check demo -s local -d . --no-launch -S site.layout.stripe_count=4",
        ("layout", "is not Lustre"),
        code=0,
    ),
    Mistake(
        "missing option",
        "dlio-hpc datasize unet3d_h100 -N 8 --ppn 8",
        ("'--memory': Memory of a node, such as 512GiB",),
    ),
    Mistake("resume what does not exist", "dlio-submit --resume nosuch", ("no job or study 'nosuch' in dlio-runs",)),
    Mistake("resume with other options", "dlio-submit --resume nosuch -N 2", ("--resume continues a study",)),
    Mistake("after what does not exist", "dlio-submit demo -s local --after nosuch", ("no job or study 'nosuch'",)),
)

YAML = (
    Mistake("absent", "dlio-submit mine.yaml", ("cannot read mine.yaml: No such file or directory",)),
    Mistake("empty", DRY, ("w.yaml: found null (empty); use a mapping with keys such as name, dataset",), _w("")),
    Mistake("comments alone", DRY, ("w.yaml: found null (empty); use a mapping",), _w("# name: w\n")),
    Mistake(
        "not text",
        DRY,
        ("cannot read w.yaml: it is not a text file in UTF-8 (byte 0 is 0x89)",),
        {"w.yaml": b"\x89HDF\r\n"},
    ),
    Mistake("zeros", DRY, ("w.yaml", "not valid YAML"), {"w.yaml": bytes(64)}),
    Mistake("folder", DRY, ("cannot read w.yaml: Is a directory",), {"w.yaml/x": ""}),
    Mistake(
        "tab",
        DRY,
        ("w.yaml, line 3: not valid YAML: a tab", "indent with blanks"),
        _w("name: w\ndataset:\n\tformat: npz\n"),
    ),
    Mistake(
        "indentation",
        DRY,
        ("w.yaml, line 4: not valid YAML", "indent the keys"),
        _w("name: w\ndataset:\n  format: npz\n   files: 8\n"),
    ),
    Mistake(
        "less indentation",
        DRY,
        ("w.yaml, line 4: not valid YAML", "indent the keys"),
        _w("name: w\ndataset:\n    format: npz\n  files: 8\n"),
    ),
    Mistake(
        "colon in text",
        DRY,
        ("w.yaml, line 1: not valid YAML", "quote text that contains ': '"),
        _w("name: w: x\n" + W),
    ),
    Mistake("quotation mark", DRY, ("w.yaml, line", "a quotation mark is not closed"), _w('name: "w\n' + W)),
    Mistake(
        "list that is not closed", DRY, ("w.yaml, line", "a list is not closed"), _w(W + "reader: {columns: [a, b}\n")
    ),
    Mistake("key given twice", DRY, ("w.yaml, line 3: key 'name' is given twice",), _w(W + "name: v\n")),
    Mistake("list of keys", DRY, ("w.yaml: found the list [{name: w}]; use a mapping",), _w("- name: w\n")),
    Mistake("prose", DRY, ("w.yaml: found text 'hello'; use a mapping",), _w("hello\n")),
    Mistake(
        "no name", DRY, ("w.yaml: key 'name' is missing; add it, such as name: mine",), _w(W.replace("name: w\n", ""))
    ),
    Mistake(
        "no dataset",
        DRY,
        ("w.yaml: key 'dataset' is missing", "dataset: {format: npz", "checkpoint.writes"),
        _w("name: w\n"),
    ),
    Mistake(
        "no format",
        DRY,
        ("w.yaml, line 2: dataset: key 'format' is missing", "tfrecord, hdf5"),
        _w(W.replace("format: npz, ", "")),
    ),
    Mistake(
        "no files",
        DRY,
        ("dataset: key 'files' is missing; add it, such as files: 64",),
        _w(W.replace("files: 8, ", "")),
    ),
    Mistake(
        "no size of a sample",
        DRY,
        ("key 'sample' is missing", "sample: {bytes: 150 KiB}"),
        _w(W.replace(", sample: {bytes: 64 KiB}", "")),
    ),
    Mistake(
        "Parquet without columns",
        DRY,
        (
            "w.yaml: dataset: key 'columns' is missing",
            "columns: [{name: label, dtype: int8}",
        ),
        _w("name: w\ndataset: {format: parquet, files: 8, samples_per_file: 4}\n"),
    ),
    Mistake(
        "type of a column",
        DRY,
        ("dataset.columns[0].dtype: found 'float'; did you mean 'float", "int8, uint8"),
        _w("name: w\ndataset: {format: parquet, files: 8, samples_per_file: 4, columns: [{dtype: float}]}\n"),
    ),
    Mistake(
        "size of a sample",
        DRY,
        ("dataset.sample: found text '64 KiB'; use a mapping, such as {bytes: 150 KiB}",),
        _w(W.replace("{bytes: 64 KiB}", "64 KiB")),
    ),
    Mistake(
        "shape in text",
        DRY,
        ("dataset.sample.shape: found text '512x512'; use a list", "such as [512, 512]"),
        _w(W.replace("bytes: 64 KiB", "shape: 512x512")),
    ),
    Mistake(
        "type of values",
        DRY,
        ("dataset.sample.dtype: found 'float'; did you mean 'float",),
        _w(W.replace("bytes: 64 KiB", "shape: [4], dtype: float")),
    ),
    Mistake(
        "empty section", DRY, ("w.yaml, line 2: dataset: found null (empty); use a mapping",), _w("name: w\ndataset:\n")
    ),
    Mistake(
        "text for a section",
        DRY,
        ("w.yaml, line 3: reader: found text 'fast'; use a mapping",),
        _w(W + "reader: fast\n"),
    ),
    Mistake(
        "list for a section",
        DRY,
        ("reader: found the list [{batch_size: 4}]; use a mapping",),
        _w(W + "reader:\n  - batch_size: 4\n"),
    ),
    Mistake(
        "mapping for a list",
        DRY,
        ("dataset.arrays: found the mapping {image: 64 KiB}; use a list of 2 to 64",),
        _w(W.replace("sample: {bytes", "arrays: {image").replace("}}", "}, sample: {bytes: 64 KiB}}")),
    ),
    Mistake(
        "no blank after a colon",
        DRY,
        ("found text 'batch_size:4'", "write a blank after the colon: batch_size: 4"),
        _w(W + "reader:\n  batch_size:4\n"),
    ),
    Mistake(
        "true for a number",
        DRY,
        (f"w.yaml, line 4: reader.batch_size: found true; {WHOLE}",),
        _w(W + "reader:\n  batch_size: true\n"),
    ),
    Mistake(
        "no blank after a colon, before another key",
        DRY,
        ("w.yaml, line 4: not valid YAML: write a blank after the colon: files: 8",),
        _w("name: w\ndataset:\n  format: npz\n  files:8\n  samples_per_file: 4\n"),
    ),
    Mistake(
        "no colon",
        DRY,
        ("w.yaml, line 4: not valid YAML: a key without a colon; write key: value",),
        _w("name: w\ndataset:\n  format: npz\n  files 8\n  samples_per_file: 4\n"),
    ),
    Mistake(
        "key of a site in a workload",
        DRY,
        ("w.yaml, line 3: unknown key 'data'; it is a key of a site profile; --data DIR",),
        _w(W + "data: /x\n"),
    ),
    Mistake(
        "key of a suite in a workload",
        DRY,
        ("unknown key 'verdict'; it is a key of a suite",),
        _w(W + "verdict: {criteria: acceptance}\n"),
    ),
    Mistake(
        "key of a site in a study",
        "dlio-submit --study s.yaml -s local --dry-run",
        ("s.yaml, line 6: unknown key 'walltime'; it is a key of a site profile",),
        {"s.yaml": STUDY + "walltime: 1:00:00\n"},
    ),
    Mistake(
        "key of a part in a study",
        "dlio-submit --study s.yaml -s local --dry-run",
        ("unknown key 'sweep'; did you mean 'parts.NAME.sweep'",),
        {"s.yaml": STUDY + "sweep: {}\n"},
    ),
    Mistake(
        "limit outside of a criterion",
        "dlio-hpc accept done --criteria c.yaml",
        ("unknown key 'min_au'; did you mean 'criteria.NAME.min_au'?",),
        {"c.yaml": "name: c\nmin_au: 90%\ncriteria: {}\n"},
    ),
    Mistake(
        "key in another section",
        DRY,
        ("w.yaml, line 2: dataset: unknown key 'batch_size'; did you mean 'reader.batch_size'",),
        _w(W.replace("files", "batch_size: 4, files")),
    ),
    Mistake(
        "section misspelt",
        DRY,
        ("w.yaml, line 3: unknown key 'readers'; did you mean 'reader'?",),
        _w(W + "readers: {batch_size: 4}\n"),
    ),
    Mistake(
        "number as a key", DRY, ("reader: found the key 4; known keys: loader",), _w(W + "reader: {4: batch_size}\n")
    ),
    Mistake(
        "site as a workload",
        "dlio-submit site.yaml",
        ("site.yaml is a site profile; --site of dlio-submit takes it",),
        _site(""),
    ),
    Mistake(
        "study as a workload",
        "dlio-submit s.yaml",
        ("s.yaml is a study; give it to dlio-submit with --study",),
        {"s.yaml": STUDY},
    ),
    Mistake("workload as a site", "dlio-submit demo -s w.yaml", ("w.yaml is a workload; dlio-submit runs it",), _w(W)),
    Mistake(
        "workload of dlio_benchmark",
        DRY,
        ("w.yaml is a workload of dlio_benchmark; give it as dlio:./w.yaml",),
        _w("model: {name: unet3d}\nframework: pytorch\ndataset: {format: npz}\n"),
    ),
    Mistake(
        "launcher of a site",
        OWN + " -S site.launcher.kind=mpirun",
        ("launcher.kind: found mpirun, which is a command; kind is its MPI library",),
        _site(""),
    ),
    Mistake(
        "limit of a queue",
        OWN,
        (f"site.yaml, line 6: queues.debug.nodes: found text 'many'; {WHOLE}",),
        _site("queues: {debug: {nodes: many}}\n"),
    ),
    Mistake(
        "walltimes of a queue",
        OWN,
        ("queues.debug.walltime", "each of its keys must be a whole number"),
        _site("queues: {debug: {walltime: {few: 1:00:00}}}\n"),
    ),
    Mistake(
        "setup in one line",
        OWN,
        ("site.yaml, line 6: setup: found text 'module load python'; use a list", "such as [module"),
        _site("setup: module load python\n"),
    ),
    Mistake(
        "variable with a number",
        OWN,
        ('environment.OMP_NUM_THREADS: found 1; use text; write "1" in quotation marks',),
        _site("environment: {OMP_NUM_THREADS: 1}\n"),
    ),
    Mistake(
        "part of a study",
        "dlio-submit --study s.yaml -s local",
        ("s.yaml, line 5: parts.a: unknown key 'sweeps'; did you mean 'sweep'?",),
        {"s.yaml": STUDY.replace("sweep", "sweeps")},
    ),
    Mistake(
        "value in a study",
        "dlio-submit --study s.yaml -s local",
        (f"parts.a.set: reader.batch_size: found text 'four'; {WHOLE}",),
        {"s.yaml": STUDY.replace("    sweep", "    set: {reader.batch_size: four}\n    sweep")},
    ),
    Mistake(
        "study without parts",
        "dlio-submit --study s.yaml -s local",
        ("s.yaml: parts: a study needs at least one",),
        {"s.yaml": "name: s\nworkload: demo\nparts: {}\n"},
    ),
    Mistake(
        "workload of a study",
        "dlio-submit --study s.yaml -s local",
        ("no workload 'dem'", "did you mean 'demo'?"),
        {"s.yaml": STUDY.replace("demo", "dem")},
    ),
)

EXISTING = (
    Mistake("no folder", DEMO + "-d nosuchdir --existing '*.npz'", ("--data", "nosuchdir: the folder does not exist")),
    Mistake(
        "no match",
        DEMO + "-d data --existing '*.npz'",
        ("--existing *.npz: no file in", "relative to --data"),
        {"data/a.npy": ""},
    ),
    Mistake(
        "other format",
        DEMO + "-d data --existing '*.npz'",
        ("a.npz is not an npz file", "set dataset.format"),
        {"data/a.npz": "hello"},
    ),
    Mistake(
        "file that is not an image",
        DEMO + "-d data --existing '*.jpg' -S dataset.format=raw",
        ("a.jpg is not an image: it begins with 68656c6c6f", "choose a pattern that leaves it out"),
        {"data/a.jpg": "hello"},
    ),
    Mistake(
        "empty file",
        DEMO + "-d data --existing '*' -S dataset.format=raw",
        ("a.bin is empty; choose a pattern",),
        {"data/a.bin": ""},
    ),
    Mistake(
        "several arrays",
        DEMO + "-d . --existing '*.h5' -S dataset.format=hdf5",
        ("two.h5", "images, labels", "dataset.existing.array"),
    ),
    Mistake(
        "array misspelt",
        DEMO + "-d . --existing '*.h5' -S dataset.format=hdf5 -S dataset.existing.array=image",
        ("two.h5", "image", "images, labels"),
    ),
    Mistake(
        "absolute pattern",
        DEMO + "-d . --existing '/data/*.npz'",
        ("'/data/*.npz' must be a path relative to the data directory",),
    ),
    Mistake(
        "compressed records",
        DEMO + "-d data --existing '*' -S dataset.format=tfrecord",
        ("a.tfrecord is truncated or corrupted", "between byte 0 and byte 16", "compression_type GZIP"),
        {"data/a.tfrecord": b"\x1f\x8b\x08\x00aaaaaaaaaaaa"},
    ),
    Mistake(
        "compressed shards",
        DEMO + "-d data --existing '*' -S dataset.format=tar",
        ("a.tar is compressed with gzip", "unpack it with gunzip"),
        {"data/a.tar": b"\x1f\x8b\x08\x00aaaaaaaaaaaa"},
    ),
    Mistake(
        "members of a shard in another order",
        DEMO + "-S dataset.format=tar -S 'dataset.sample={bytes: 100}' -S dataset.arrays=[64,36] "
        "-S reader.mode=framework -S reader.shuffle.samples=false -S reader.array_order=[1,0]",
        ("reader.array_order", "read front to back", "mode=posix"),
    ),
    Mistake(
        "member of 8 GiB",
        DEMO + "-S dataset.format=tar -S 'dataset.sample={bytes: 8 GiB}'",
        ("format=tar", "smaller than 8 GiB", "lower the size"),
    ),
    Mistake(
        "documents in other files",
        DEMO + "-S dataset.documents.tokens=1000",
        ("documents is for format=indexed, not npz", "leave documents null"),
    ),
    Mistake(
        "blend of fewer files than weights",
        DEMO + "-S dataset.format=indexed -S dataset.files=2 -S 'dataset.blend=[0.6, 0.3, 0.1]'",
        ("blend: 3 weights for 2 files", "at least one file for each weight"),
    ),
    Mistake(
        "blend that shuffles files alone",
        DEMO + "-S dataset.format=indexed -S 'dataset.blend=[0.6, 0.4]' -S reader.shuffle.files=true"
        " -S reader.shuffle.samples=false",
        ("reader.shuffle", "set shuffle.files and shuffle.samples both to true, or both to false"),
    ),
    Mistake(
        "format without a scan",
        DEMO + "-d data --existing '*' -S dataset.format=csv",
        ("files of format=csv cannot be read", "raw"),
    ),
    Mistake(
        "size of existing files",
        DEMO + "-d . --existing '*.npz' --dataset-size 1GiB",
        ("an existing dataset keeps its size",),
    ),
    Mistake(
        "workload without a dataset",
        "dlio-submit llama3_8b -s local --dry-run -d . --existing '*.npz'",
        ("--existing: workload llama3_8b writes checkpoints and reads no dataset; leave --existing out",),
    ),
)

RESULTS = (
    Mistake(
        "no such job", "dlio-hpc report nosuch", ("no job or study 'nosuch' in dlio-runs", "dlio-hpc status lists jobs")
    ),
    Mistake("folder without a job", "dlio-hpc report .", ("is not a job directory",)),
    Mistake(
        "no jobs",
        "dlio-hpc wait -o nowhere",
        ("no jobs in nowhere, which does not exist; give the directory of your jobs with --runs",),
    ),
    Mistake("cancel what", "dlio-hpc cancel", ("give the jobs to cancel, or --all",)),
    Mistake("cancel what has ended", "dlio-hpc cancel done", ("had already ended, completed",), code=0),
    Mistake("collect twice", "dlio-hpc collect done", ("already archived",), code=0),
    Mistake(
        "metric misspelt",
        "dlio-hpc compare done --metric samples_per_sec",
        ("did you mean 'samples_per_s'?", "read_MBps"),
    ),
    Mistake(
        "tolerance in percent", "dlio-hpc compare done --tolerance 5", ("found '5'; use a share such as 90% or 0.9",)
    ),
    Mistake(
        "memory of a node without a unit",
        "dlio-hpc datasize demo --ppn 8 --memory 512",
        ("--memory 512: found '512', which is 512 bytes; give the unit, such as 512GiB or 512B",),
    ),
    Mistake(
        "size of a dataset without a unit",
        "dlio-submit demo -s local --dataset-size 64 --dry-run",
        ("'--dataset-size': found '64', which is 64 bytes; give the unit, such as 64GiB",),
    ),
    Mistake(
        "limit in another unit",
        "dlio-hpc accept done --criteria c.yaml",
        ("did you mean 'min_read_MBps'? Multiply the value by 1000, because its unit is MB/s",),
        _criteria("min_read_GBps: 200"),
    ),
    Mistake(
        "latency without a unit",
        "dlio-hpc accept done --criteria c.yaml",
        ("c.yaml, line 3: criteria.io.max_read_p99: found 50, which is 50 s; give the unit, such as 50ms or 50s",),
        _criteria("max_read_p99: 50"),
    ),
    Mistake(
        "memory of an accelerator without a unit",
        "dlio-hpc accept done --criteria c.yaml",
        ("criteria.io.rank_memory: found 80, which is 80 bytes; give the unit, such as 80GiB or 80B",),
        _criteria("rank_memory: 80"),
    ),
    Mistake(
        "limit of a site without a unit",
        "dlio-submit demo -s local --dry-run -S site.limits.space=20",
        ("site.limits.space", "found 20, which is 20 bytes; give the unit, such as 20GiB or 20B"),
    ),
    Mistake(
        "no such baseline to compare with", "dlio-hpc compare done --baseline nosuch", ("'nosuch'", "dlio-hpc status")
    ),
    Mistake(
        "no such baseline",
        "dlio-hpc baseline retire nosuch --message x",
        ("no baseline nosuch", "dlio-hpc baseline list"),
    ),
    Mistake("no reason", "dlio-hpc baseline accept done", ("Missing option '--message': Reason for the decision",)),
    Mistake("no criteria", "dlio-hpc accept done", ("no criteria file is given: use --criteria NAME or FILE",)),
    Mistake(
        "criteria misspelt",
        "dlio-hpc accept done --criteria acceptence",
        ("no criteria 'acceptence'; did you mean 'acceptance'?",),
    ),
    Mistake(
        "limit on an unknown metric",
        "dlio-hpc accept done --criteria c.yaml",
        ("c.yaml, line 3: criteria.io: unknown key 'min_samples_per_sec'; did you mean 'min_samples_per_s'?",),
        _criteria("min_samples_per_sec: 100"),
    ),
    Mistake(
        "limit in words",
        "dlio-hpc accept done --criteria c.yaml",
        ("c.yaml, line 3: criteria.io.max_spread: found 'small'; use a share such as 90% or 0.9",),
        _criteria("max_spread: small"),
    ),
    Mistake(
        "criterion without a limit",
        "dlio-hpc accept done --criteria c.yaml",
        ("c.yaml", "criteria.io: no limit or rule", "min_au"),
        _criteria("title: io"),
    ),
    Mistake("workload as criteria", "dlio-hpc accept done --criteria w.yaml", ("w.yaml is a workload",), _w(W)),
    Mistake(
        "edition",
        "dlio-hpc mlperf-report out done --edition v4 --division closed --submitter x --system y",
        ("found 'v4'", "v2, v3"),
    ),
    Mistake(
        "workload that MLPerf Storage does not have",
        "dlio-hpc mlperf-report out done --edition v3 --division closed --submitter x --system y",
        ("MLPerf Storage v3.0 has no workload 'demo'; leave the job out", "unet3d_b200"),
    ),
    Mistake("day in words", "dlio-hpc history --since yesterday", ("found 'yesterday'; use a day such as 2026-11-21",)),
    Mistake(
        "day that does not exist", "dlio-hpc history --since 2026-02-31", ("found '2026-02-31'; use a day such as",)
    ),
    Mistake(
        "days exchanged",
        "dlio-hpc history --since 2026-03-01 --until 2026-02-01",
        ("--since 2026-03-01 is later than --until",),
    ),
    Mistake("nodes of a history", "dlio-hpc history --nodes two", ("found 'two'; use a whole number",)),
    Mistake("state misspelt", "dlio-hpc history --state complete", ("found 'complete'; did you mean 'completed'?",)),
    Mistake(
        "history of a folder without archives",
        "dlio-hpc history --archive nowhere",
        ("the folder of archives nowhere does not exist", "--archive"),
    ),
    Mistake(
        "truncated archive",
        "dlio-hpc report a.tar.zst",
        ("a.tar.zst is corrupted", "truncated"),
        {"a.tar.zst": b"\x28\xb5\x2f\xfd\x04"},
        3,
    ),
    Mistake(
        "not an archive",
        "dlio-hpc archive verify a.tar.zst",
        ("a.tar.zst", "cannot be read"),
        {"a.tar.zst": "hello"},
        3,
    ),
    Mistake("no archive", "dlio-hpc archive list a.tar.zst", ("cannot read a.tar.zst: No such file or directory",)),
    Mistake("not a log", "dlio-hpc darshan a.darshan", ("a.darshan is not a Darshan log",), {"a.darshan": "hello"}, 3),
    Mistake(
        "not a log to characterize",
        "dlio-hpc characterize a.darshan",
        ("a.darshan is not a Darshan log",),
        {"a.darshan": "hello"},
        3,
    ),
    Mistake("no log", "dlio-hpc darshan a.darshan", ("cannot read a.darshan: No such file or directory",)),
    Mistake(
        "pattern of a shell",
        "dlio-hpc darshan a.darshan --only '*.h5'",
        ("'*.h5' is not a regular expression",),
        {"a.darshan": ""},
    ),
    Mistake(
        "import of a workload of ours", "dlio-hpc import w.yaml", ("nothing to import. Run it: dlio-submit w",), _w(W)
    ),
    Mistake(
        "import of another YAML",
        "dlio-hpc import w.yaml",
        ("w.yaml: not a workload of dlio_benchmark",),
        _w("services: {web: {}}\n"),
    ),
    Mistake("one program", "dlio-hpc similarity done", ("give two programs to compare, not 1",)),
    Mistake(
        "profile that exists",
        "dlio-hpc sites new mine",
        ("mine.yaml already exists; give another name",),
        {"mine.yaml": ""},
    ),
    Mistake(
        "datasets of no folder", "dlio-hpc datasets verify -d nowhere", ("nowhere, which does not exist", "--data")
    ),
    Mistake(
        "no such dataset",
        "dlio-hpc datasets remove nosuch -d .",
        ("no dataset nosuch in ", "dlio-hpc datasets list"),
    ),
)

REC = {"rec/processes/node/1-1795827954193606802.jsonl": "{}"}
# Files and folders of another kind than the verb takes.
KINDS = (
    Mistake("program to characterize", "dlio-hpc characterize train.py",
            ("train.py is a program; record a run of it: dlio-hpc record -- python train.py",), {"train.py": ""}),
    Mistake("workload to characterize", "dlio-hpc characterize w.yaml", ("w.yaml is a YAML file", "dlio-submit"),
            _w(W)),
    Mistake("part of a recording", "dlio-hpc characterize rec/processes/node",
            ("give the recording: rec.",), REC),
    Mistake("file of a recording", "dlio-hpc characterize rec/processes/node/1-1795827954193606802.jsonl",
            ("give the recording: rec.",), REC),
    Mistake("job to characterize", "dlio-hpc characterize dlio-runs/done",
            ("dlio-runs/done is a job of dlio-hpc; dlio-hpc report dlio-runs/done shows it",)),
    Mistake("archive as a log", "dlio-hpc darshan a.tar.zst", ("a.tar.zst is an archive of a job",),
            {"a.tar.zst": "hello"}),
    Mistake("recording as a log", "dlio-hpc darshan rec", ("rec is a recording; dlio-hpc characterize rec",), REC),
    Mistake("recording as a job", "dlio-hpc similarity done ./rec", ("rec is a recording",), REC),
    Mistake("workload as a program", "dlio-hpc similarity done w.yaml", ("w.yaml is a workload; dlio-submit runs it",),
            _w(W)),
    Mistake("study as criteria", "dlio-hpc accept done --criteria s.yaml",
            ("s.yaml is a study; give it to dlio-submit with --study",), {"s.yaml": STUDY}),
    Mistake("job as an archive", "dlio-hpc archive verify dlio-runs/done",
            ("dlio-runs/done is a job of dlio-hpc", "dlio-runs/archive/JOB.tar.zst")),
    Mistake("folder of archives", "dlio-hpc archive verify dlio-runs/archive",
            ("give the archives in it: dlio-runs/archive/*.tar.zst",)),
    Mistake("workload as an archive", "dlio-hpc accept ./w.yaml --criteria acceptance", ("w.yaml is a YAML file",),
            _w(W)),
    Mistake("text as a key", "dlio-hpc baseline accept done --message ok --force --sign notes.txt",
            ("--sign notes.txt: the file is not an SSH key; give one, such as ~/.ssh/",), {"notes.txt": "hello"}),
    Mistake("no key", "dlio-hpc baseline accept done --message ok --force --sign nokey", ("there is no such file",)),
    Mistake("file as a folder of pages", "dlio-hpc site-report index.html", ("index.html is a file; give a folder",),
            {"index.html": ""}),
    Mistake("folder as a pattern", "dlio-submit demo -s local -d . --dry-run --existing train",
            ("--existing train: this is a folder; write 'train/*'",), {"train/a.npz": NPZ}),
)  # fmt: skip
# Options, keys and filters without effect, or named as in another tool.
WITHOUT_EFFECT = (
    Mistake("settings without a check", "dlio-hpc characterize rec -S reader.batch_size=8",
            ("--set has an effect only with --check",), REC),
    Mistake("step without numbers", "dlio-hpc darshan a.darshan --step 1s", ("--step has an effect only with --json",),
            {"a.darshan": ""}),
    Mistake("step of a printed report", "dlio-hpc report done --step 5s",
            ("--step has an effect only with --json or --csv",)),
    *(Mistake(f"two formats of {command.split()[0]}", f"dlio-hpc {command} --csv --json",
              ("--json and --csv exclude each other; give one of them",), {"a.darshan": ""})
      for command in ("report done", "darshan a.darshan", "history")),
    Mistake("suite without a verdict", "dlio-submit --suite s.yaml -s local --dry-run",
            ("s.yaml has no verdict, so it is a study: give it with --study, or add the key verdict",),
            {"s.yaml": STUDY}),
    Mistake("pattern that matches no job", "dlio-hpc history 'cosmo*'",
            ("no job of dlio-runs/archive matches 'cosmo*'; it has 1 job, such as demo-", "; workloads demo;")),
    Mistake("workload without jobs", "dlio-hpc history --workload demmo --since 2030-01-01",
            ("matches --workload demmo, --since 2030-01-01",)),
    Mistake("key in set and in sweep", "dlio-submit --study s.yaml -s local --dry-run",
            ("parts.a: reader.read_threads is in set and in sweep",),
            {"s.yaml": STUDY + "    set: {reader.read_threads: 2}\n"}),
    Mistake("key as it begins", DEMO + "-S checkpoint.async=true", ("did you mean 'asynchronous'?",)),
    Mistake("beginning of a key", DEMO + "-S checkpoint.every=100", ("did you mean 'every_steps'?",)),
    Mistake("key of fio", DEMO + "-S reader.iodepth=16", ("did you mean 'queue_depth'?",)),
    Mistake("key of PyTorch", DEMO + "-S reader.num_workers=4", ("did you mean 'read_threads'?",)),
    Mistake("key of dlio_benchmark", DEMO + "-S checkpoint.steps_between_checkpoints=9",
            ("did you mean 'every_steps'?",)),
    Mistake("evaluation of dlio_benchmark", DEMO + "-S evaluation.epochs_between_evals=2",
            ("did you mean 'every_epochs'?",)),
    Mistake("pattern of existing files", DEMO + "-d . -S dataset.existing.pattern='*.npz'", ("did you mean 'glob'?",)),
    Mistake("recording into a folder with files", "dlio-hpc record -o . -- true", ("has other files, such as ",)),
    Mistake("folder without logs", "dlio-hpc characterize .",
            (". is neither a recording nor a folder with Darshan logs (*.darshan); ",)),
    Mistake("files of existing ones", DEMO + "--existing '*.npz' -S dataset.files=3",
            ("-S dataset.files=3 has no effect with --existing: the existing files determine dataset.files",)),
    Mistake("files of a datasize", "dlio-hpc datasize demo --ppn 2 --memory 1GiB -S dataset.files=3",
            ("-S dataset.files=3 has no effect: dataset.files is what datasize prints",)),
    Mistake("settings of an import", "dlio-hpc import x.yaml -S reader.batch_size=8",
            ("No such option '-S'", "++workload.reader.batch_size=8")),
    Mistake("wait for an estimate", "dlio-hpc estimate demo -s local --wait", ("estimate submits nothing",)),
    Mistake("job to clean", "dlio-hpc clean done", ("clean takes no jobs", "remove it with rm")),
    Mistake("pattern that the shell expands", DEMO + "--existing a.npz b.npz", ("Put patterns in quotes",)),
    Mistake("run without a job", "dlio-hpc similarity a.darshan b.darshan --run 01",
            ("--run names a run of a job, but no job is compared",), {"a.darshan": "", "b.darshan": ""}),
    Mistake("files of jobs", "dlio-hpc similarity done done --only npz",
            ("--only selects files of Darshan logs, but no log is compared",)),
    Mistake("key of a laptop alone", "dlio-submit --study s.yaml -s local --dry-run",
            ("parts.a.laptop.sweep: reader.prefetch is not in the sweep of the part, which has reader.read_threads",),
            {"s.yaml": STUDY + "    laptop: {sweep: {reader.prefetch: [1, 2]}}\n"}),
    Mistake("page in place of a folder", "dlio-hpc history --html .", ("cannot write .: Is a directory",)),
    Mistake("archive to a file", "dlio-hpc archive extract x.tar.zst --to w.yaml",
            ("w.yaml is a file; give a folder",), _w(W)),
    Mistake("model and files", DEMO + "-S checkpoint.model=llama3_8b -S checkpoint.files=[10]",
            ("model replaces files and model_bytes: set files and model_bytes to null, or set model to null",)),
    Mistake("range of nothing", "dlio-hpc history --nodes many", ("found 'many'; use a whole number",)),
    Mistake("script that cannot run", "dlio-hpc record -o r -- ./train.py",
            ("cannot run ./train.py: Permission denied; write: dlio-hpc record -- python ./train.py",),
            {"train.py": ""}),
)  # fmt: skip
# Words in another order, with blanks or with one dash; options of another kind; folders and archives that do not exist.
LINES = (
    Mistake("long option with one dash", "dlio-submit demo -site local", ("'-site'", "two dashes: --site")),
    Mistake("dry run with one dash", "dlio-submit demo -s local -dry-run", ("'-dry-run'", "two dashes: --dry-run")),
    Mistake("one dash in a group", "dlio-hpc archive verify -json x", ("'-json'", "two dashes: --json")),
    Mistake("blanks around =", DEMO + "-S reader.batch_size = 4", ("without blanks: -S reader.batch_size=4",)),
    Mistake("blank after =", DEMO + "-S reader.batch_size= 4", ("without blanks: -S reader.batch_size=4",)),
    Mistake("blanks in a list", DEMO + "-P reader.read_threads=1, 2", ("without blanks: -P reader.read_threads=1,2",)),
    Mistake("blanks in a list of nodes", DEMO + "-N 1, 2", ("without blanks: -N 1,2",)),
    Mistake("blank before a unit", "dlio-hpc top --every 10 sec", ("without blanks: --every 10s",)),
    Mistake("blank before the unit of a size", DEMO + "--dataset-size 64 MiB", ("blanks: --dataset-size 64MiB",)),
    Mistake("= after an option", "dlio-submit demo --site = local", ("without blanks: --site local",)),
    Mistake("option before the verb", "dlio-hpc --runs X status", ("after the command: dlio-hpc status --runs X",)),
    Mistake("flag before the verb", "dlio-hpc --csv report JOB", ("after the command: dlio-hpc report JOB --csv",)),
    Mistake("option before a group", "dlio-hpc --archive X baseline list",
            ("after the command: dlio-hpc baseline list --archive X",)),
    Mistake("workload and site as verbs", "dlio-hpc demo local", ("did you mean 'dlio-hpc submit demo -s local'?",)),
    Mistake("site as a verb", "dlio-hpc theta", ("did you mean 'dlio-hpc submit WORKLOAD -s theta'?",)),
    Mistake("site as an operand", "dlio-submit demo local", ("(local): a site is given by an option: -s local",)),
    Mistake("program as a workload", "dlio-submit train.py",
            ("train.py is a program", "dlio-hpc record -- python train.py", "characterize"), {"train.py": ""}),
    Mistake("path of a program", "dlio-submit ./train.sh", ("train.sh is a program", "record -- bash train.sh"),
            {"train.sh": ""}),
    Mistake("job as a workload", "dlio-submit dlio-runs/done",
            ("is a job of dlio-hpc", "This command needs a workload")),
    Mistake("workload as a site profile", "dlio-submit demo -s photos.yaml",
            ("photos.yaml is a workload", "This command needs a site profile"), {"photos.yaml": W}),
    Mistake("page as a job", "dlio-hpc report page.html",
            ("page.html is a page (HTML)", "This command needs a job, a study, or the archive"),
            {"page.html": "<html>"}),
    Mistake("PDF as a job", "dlio-hpc accept a.pdf --criteria acceptance", ("a.pdf is a PDF",), {"a.pdf": "%"}),
    Mistake("table as a job", "dlio-hpc compare t.csv", ("t.csv is a table (CSV)",), {"t.csv": "a,b"}),
    Mistake("page as an archive", "dlio-hpc archive verify page.html",
            ("page.html is a page (HTML)", "needs the archive of a job"), {"page.html": "<html>"}),
    Mistake("other file as a job", "dlio-hpc report notes", ("notes is a text, not an archive",), {"notes": "hello"}),
    Mistake("folder of jobs as a job", "dlio-hpc report dlio-runs",
            ("dlio-runs is the folder of all jobs", "the newest: dlio-runs/done", "dlio-hpc status --runs dlio-runs")),
    Mistake("archive that is missing", "dlio-hpc accept dlio-runs/archive/dnoe.tar.zst --criteria acceptance",
            ("no archive 'dnoe.tar.zst' in dlio-runs/archive", "dlio-hpc collect dnoe")),
    Mistake("folder of a profile", "dlio-hpc sites new mine --to nowhere/at/x.yaml",
            ("the folder nowhere/at does not exist", "mkdir", "--to")),
    Mistake("data folder that does not exist", DEMO + "-d nowhere/at", ("note: --data", "nowhere/at does not exist"),
            code=0),
    Mistake("folder of existing files", DEMO + "-d nowhere --existing 'train/*.npz'",
            ("--data", "nowhere: the folder does not exist")),
    Mistake("folder of a pair misspelt", DEMO + "--ab old nwe", ("--ab: the folder", "nwe does not exist"),
            {"old/x": ""}),
    Mistake("change in percent", "dlio-hpc estimate demo -s local --detect 5", ("5 percent is 5%",)),
    Mistake("change of one percent", "dlio-hpc estimate demo -s local --detect 1", ("1 percent is 1%",)),
    Mistake("time of a step", DEMO + "-S compute.time=100",
            ("compute.time: found '100', which is 100 s; give the unit, such as 100ms or 100s",)),
    Mistake("times of a step", DEMO + "-P compute.time=5,50", ("found '50', which is 50 s; give the unit",)),
    Mistake("time of a sample", DEMO + "-S reader.preprocess_time=20", ("which is 20 s; give the unit",)),
    Mistake("hours or minutes", DEMO + "-t 2:00",
            ("found '2:00', which batch systems read as minutes and seconds; for hours", "write 120m or 2:00:00")),
    Mistake("options of fio", DEMO + "--ioengine=libaio --iodepth=16",
            ("No such option '--ioengine'", "a setting of the workload, such as -S reader.engine=io_uring")),
    Mistake("option that is like no other", DEMO + "--zzqqxx 3", ("No such option '--zzqqxx'.\n",)),
    Mistake("ranks of all nodes", DEMO + "-n 8",
            ("No such option '-n': give the ranks of each node with --ppn, and the nodes with --nodes",)),
    Mistake("setting of dlio_benchmark", DEMO + "++workload.reader.batch_size=4",
            ("settings are given by an option: -S reader.batch_size=4",)),
    Mistake("blank between key and value", DEMO + "-S reader.batch_size 8",
            ("-S takes KEY=VALUE: -S reader.batch_size=8",)),
    Mistake("dataset that nobody generates", "dlio-submit demo -s local -d data --generate never",
            ("no dataset npz-", "(none exists); generate it with --generate auto"), {"data/note": ""}),
    Mistake("dataset that is missing, in a check", "dlio-hpc check demo -s local -d data --generate never --no-launch",
            ("no dataset npz-", "(none exists); generate it with --generate auto"), {"data/note": ""}),
    Mistake("time of a step in a file", DRY, ("note: compute.time is 100 s; if milliseconds are meant, write 100 ms",),
            {"w.yaml": W + "compute: {time: 100}\n"}, 0),
    Mistake("partition of a site", "dlio-hpc sites site.yaml", ("unknown key 'partition'; did you mean 'queue'?",),
            {"site.yaml": SITE + "partition: gpu\n"}),
    Mistake("format of images", DEMO + "-S dataset.format=image",
            ("use jpeg or png, or raw for images of other kinds",)),
    Mistake("format of images misspelt", DEMO + "-S dataset.format=jpg", ("did you mean 'jpeg'?",)),
    Mistake("images with several samples a file", DEMO + "-S dataset.format=jpeg",
            ("samples_per_file: found 4, but a JPEG file holds one image; set samples_per_file: 1",)),
    Mistake("nodes of this computer", DEMO + "-N 2", ("use --ppn for more ranks, or -s for a site with more nodes",)),
    Mistake("folder of jobs misspelt", "dlio-hpc status -o run", ("no jobs in run, which does not exist",)),
    Mistake("history of a folder of jobs misspelt", "dlio-hpc history -o run",
            ("the folder of jobs run does not exist; did you mean 'runs'?",), {"runs/x": ""}),
    Mistake("address of a database", "dlio-hpc history --influx http://localhost:8086/write",
            ("this option writes a file: give a path, or - and pipe the output to a client",)),
    Mistake("checkpoints by epochs", DEMO + "-S checkpoint.every_epochs=1",
            ("a checkpoint is written after every epoch unless every_steps is set",)),
    Mistake("collect of a folder", "dlio-hpc collect empty",
            ("empty is not a job directory: give the name of a job, see dlio-hpc status",), {"empty/x": ""}),
    Mistake("report of datasets", "dlio-hpc report data", ("data is a folder of datasets",),
            {"data/npz-1/dlio-dataset.json": "{}"}),
    Mistake("extract of a job", "dlio-hpc archive extract demo-1",
            ("give the archive of a job, such as dlio-runs/archive/JOB.tar.zst",)),
)  # fmt: skip

SET = "data/npz-1/dlio-dataset.json"
# A folder of another kind than the option takes. Nothing is written or removed.
FOLDERS = (
    Mistake("jobs in place of archives", "dlio-hpc history --rebuild --archive dlio-runs",
            ("dlio-runs is a folder of jobs; give the folder of archives with --archive: dlio-runs/archive",)),
    Mistake("site of a folder of jobs", "dlio-hpc site-report site --archive dlio-runs",
            ("dlio-runs is a folder of jobs", "--archive: dlio-runs/archive")),
    Mistake("datasets in place of archives", "dlio-hpc history --archive data",
            ("data is a folder of datasets", "--archive: dlio-runs/archive"), {SET: "{}"}),
    Mistake("prune of a folder of jobs", "dlio-hpc archive prune dlio-runs --keep 1d",
            ("dlio-runs is a folder of jobs; give the folder of archives: dlio-runs/archive",)),
    Mistake("share of a folder of jobs", "dlio-hpc archive share dlio-runs --group root",
            ("dlio-runs is a folder of jobs; give the folder of archives: dlio-runs/archive",)),
    Mistake("clean of datasets", "dlio-hpc clean -o data",
            ("data is a folder of datasets; give the folder of jobs with --runs: dlio-runs",), {SET: "{}"}),
    Mistake("clean of a job", "dlio-hpc clean -o dlio-runs/done", ("dlio-runs/done is a job", "--runs: dlio-runs")),
    Mistake("removal of the folder of datasets", "dlio-hpc datasets remove data",
            ("data is a folder of datasets; give a dataset in it, such as data/npz-1", "datasets list -d data"),
            {SET: "{}"}),
    Mistake("datasets of a folder of jobs", "dlio-hpc datasets list -d dlio-runs",
            ("dlio-runs is a folder of jobs; give the folder of datasets with --data",)),
    Mistake("dataset as a data folder", DEMO + "-d data/npz-1",
            ("--data data/npz-1 is a dataset; give the folder of datasets: ", "/data"), {SET: "{}"}),
    Mistake("folder in a dataset", DEMO + "-d data/npz-1/new", ("--data data/npz-1/new is in the dataset", "/data"),
            {SET: "{}"}),
    Mistake("jobs in a dataset", DEMO + "-o data/npz-1",
            ("--runs data/npz-1 is a dataset; give a folder outside of it, such as ", "/dlio-runs"), {SET: "{}"}),
    Mistake("jobs in a job", DEMO + "-o dlio-runs/done", ("is a job; give the folder of jobs: ", "/dlio-runs")),
    Mistake("data in a folder of jobs", DEMO + "-d dlio-runs",
            ("--data dlio-runs is a folder of jobs; give a folder outside of it, such as ", "/dlio-data")),
    Mistake("data in a job", DEMO + "-d dlio-runs/done", ("is a job; give a folder outside of it", "/dlio-data")),
    Mistake("half of a pair in a dataset", DEMO + "--ab data/npz-1 data", ("--ab data/npz-1 is a dataset",),
            {SET: "{}"}),
)  # fmt: skip
COPY = {"done/job.json": "{}"}
# The bare name of a job in the folder of jobs, which also is a name in the working directory.
COPIES = tuple(
    Mistake(f"copy of a job, in {verb}", f"dlio-hpc {verb} done{options}",
            ("both dlio-runs/done and ./done exist; write the path of the one that is meant",), COPY)
    for verb, options in {
        "report": "", "wait": "", "collect": "", "cancel": "", "status": "", "top": "", "compare": "",
        "accept": " --criteria acceptance", "baseline accept": " --message ok --force",
        "compare --baseline done": "", "similarity ./x": "", "mlperf-report out": " --edition v3 --division closed "
        "--submitter x --system y",
    }.items()
)  # fmt: skip
IMPORTED = {"u.yaml": "model: {name: unet3d}\nframework: pytorch\ndataset: {format: npz, num_files_train: 8}\n"}
# Outputs in place of inputs, folders in place of files, and the reverse.
TARGETS = (
    Mistake("picture as the folder of pictures", "dlio-hpc report done --figures out.png",
            ("out.png is the name of a file; give a folder for the pictures, such as out",)),
    Mistake("file as the folder of pictures", "dlio-hpc report done --figures w.yaml",
            ("w.yaml is a file; give a folder",), _w(W)),
    Mistake("trace as a picture", "dlio-hpc report done --perfetto trace.svg",
            ("trace.svg does not end in .json or .json.gz",)),
    Mistake("folder as a page", "dlio-hpc report done --html .",
            ("cannot write .: Is a directory; give the name of a file",)),
    Mistake("folder as a workload", "dlio-hpc characterize rec -o dlio-runs",
            ("cannot write dlio-runs: Is a directory; give the name of a file",), REC),
    Mistake("folder after an archive", "dlio-hpc archive extract x.tar.zst .",
            (". is a folder, and nothing is extracted; to extract into a folder: --to .",)),
    Mistake("site in a folder of archives", "dlio-hpc site-report dlio-runs/archive",
            ("dlio-runs/archive is a folder of archives, but DIR is the folder that the web site is written to",
             "site-report DIR --archive dlio-runs/archive")),
    Mistake("site in a folder of jobs", "dlio-hpc site-report dlio-runs",
            ("dlio-runs is a folder of jobs, but DIR is the folder", "site-report DIR --runs dlio-runs")),
    Mistake("site in a dataset", "dlio-hpc site-report data/npz-1", ("data/npz-1 is a dataset, but DIR is",),
            {SET: "{}"}),
    Mistake("file as a prefix", "dlio-hpc install-site w.yaml", ("w.yaml is a file; give a folder",), _w(W)),
    Mistake("file above a prefix", "dlio-hpc install-site w.yaml/sw", ("w.yaml is a file; give a folder in its place",),
            _w(W)),
    Mistake("file as a data folder", DEMO + "-d w.yaml", ("w.yaml is a file; give a folder",), _w(W)),
    Mistake("archive to prune", "dlio-hpc archive prune w.yaml --keep 1d", ("w.yaml is a file; give a folder",), _w(W)),
    Mistake("file of a folder that does not exist", "dlio-hpc history --openmetrics nowhere/dlio.prom",
            ("the folder nowhere does not exist; create it (mkdir -p)",)),
    Mistake("import into its source", "dlio-hpc import u.yaml -o ./u.yaml",
            ("--output u.yaml is also the input file, which is not overwritten; give another file",), IMPORTED),
    Mistake("page in place of criteria", "dlio-hpc accept done --criteria c.yaml --html c.yaml",
            ("c.yaml is the name of another kind; give c.html",), _criteria("min_au: 1%")),
    Mistake("page over notes", "dlio-hpc history --html notes.html",
            ("notes.html was not written by dlio-hpc, so it is not replaced; move it, or give another name",),
            {"notes.html": "mine"}),
    Mistake("page over a file of a dataset", "dlio-hpc history --html train.npz",
            ("train.npz was not written by dlio-hpc, so it is not replaced",), {"train.npz": "PK..."}),
    Mistake("dataset that is a file", "dlio-hpc datasets verify ./w.yaml",
            ("/w.yaml is a file; give the name or the folder of a dataset",), _w(W)),
    Mistake("removal of a file", "dlio-hpc datasets remove w.yaml -d .",
            ("w.yaml is a file; give the name or the folder of a dataset",), _w(W)),
    Mistake("beginning of a name of a dataset", "dlio-hpc datasets verify np -d data",
            ("no dataset np in /", "/data; did you mean 'npz-1'? dlio-hpc datasets list -d /"), {SET: "{}"}),
    Mistake("data folder that a doctor does not find", "dlio-hpc doctor -s local -d nowhere/at",
            ("/nowhere/at: does not exist; dlio-hpc would create it in /",), code=0),
    Mistake("unknown variable of a module file", "dlio-hpc install-site sw --env DLIO_HPC_SIET=my",
            ("'--env'", "DLIO_HPC_SIET has no effect", "did you mean 'DLIO_HPC_SITE'?")),
    Mistake("blanks in a variable", "dlio-hpc install-site sw --env 'DLIO_HPC_SITE = my'",
            ("write no blanks around '=': DLIO_HPC_SITE=my",)),
    Mistake("two modules", "dlio-hpc install-site sw --load 'cray-mpich python'",
            ("give one module with each --load: --load cray-mpich --load python",)),
    Mistake("name of a variable", "dlio-hpc install-site sw --env dlio-site=mycluster",
            ("'dlio-site' is not a valid name of a variable", "'_', such as dlio_site")),
)  # fmt: skip
# Environment variables that set options.
VARIABLES = (
    Mistake("variable misspelt", f"DLIO_HPC_ACOUNT=proj {DEMO}",
            ("note: the environment variable DLIO_HPC_ACOUNT has no effect", "did you mean 'DLIO_HPC_ACCOUNT'?"),
            code=0),
    Mistake("variable of nothing", "DLIO_HPC_COLOUR=never dlio-hpc check demo -s local --no-launch",
            ("DLIO_HPC_COLOUR has no effect, because no option has this name; dlio-hpc COMMAND --help",), code=0),
    Mistake("number in words", f"DLIO_HPC_NODES=two {DEMO}",
            ("Invalid value for the environment variable DLIO_HPC_NODES: found text 'two'; use whole numbers",)),
    Mistake("flag in words", f"DLIO_HPC_QUIET=perhaps {DEMO}",
            ("the environment variable DLIO_HPC_QUIET: found 'perhaps'; use true or false",)),
    Mistake("folder of jobs that does not exist", "DLIO_HPC_RUNS=/nowhere/runs dlio-hpc wait done",
            ("in /nowhere/runs;", "that folder does not exist",
             "(/nowhere/runs is from the environment variable DLIO_HPC_RUNS)")),
    Mistake("site misspelt in a variable", "DLIO_HPC_SITE=perlmuter dlio-submit demo --dry-run",
            ("no site 'perlmuter'", "(perlmuter is from the environment variable DLIO_HPC_SITE)")),
    Mistake("file as a folder in a variable", f"DLIO_HPC_DATA=w.yaml {DEMO}",
            ("the environment variable DLIO_HPC_DATA: w.yaml is a file; give a folder",), _w(W)),
    Mistake("folder of jobs that is given", "dlio-hpc wait done -o nowhere",
            ("in nowhere;", "(that folder does not exist)")),
)  # fmt: skip
# Options of another verb, and values of another option.
OF_OTHER_VERBS = (
    Mistake("filter of the history", "dlio-hpc status --state failed",
            ("No such option '--state'; it is an option of history",)),
    Mistake("day of a site", "dlio-hpc site-report site --since 2026-11-01",
            ("No such option '--since'; it is an option of history",)),
    Mistake("option of a verb in a group", "dlio-hpc history --sign key", ("it is an option of baseline accept",)),
    Mistake("interval of watch", "dlio-hpc top -d 2", ("No such option '-d': give the time", "with --every")),
    Mistake("interval with a unit", "dlio-hpc top --every 0s",
            ("'--every': found '0s'; use a time above 0, such as 5s",)),
    Mistake("limit of a wait", "dlio-hpc wait done --timeout 10m", ("timeout 10m dlio-hpc wait JOB",)),
    Mistake("keys of a workload", "dlio-hpc workloads demo --keys",
            ("dlio-hpc schema workload --text lists the keys",)),
    Mistake("key of a schema", "dlio-hpc schema workload reader.read_threads", ("grep -A3 KEY",)),
    Mistake("days as a number of jobs", "dlio-hpc history --last 30d",
            ("found '30d'; use a whole number", "--last takes a number of jobs; for days, use --since DAY")),
    Mistake("day after the end of a month", "dlio-hpc history --since 2026-11-31",
            ("use a day such as 2026-11-30", "2026-11 has 30 days")),
    Mistake("verb of a document misspelt", "dlio-hpc schema --json-of darshen", ("did you mean 'darshan'?",)),
    Mistake("table to a file", "dlio-hpc history --csv out.csv",
            ("--csv takes no file", "dlio-hpc history --csv > out.csv"), {"out.csv": "keep"}),
    Mistake("document to a file", "dlio-hpc report done --json out.json",
            ("dlio-hpc report done --json > out.json",)),
    Mistake("directory after the jobs",
            "dlio-hpc mlperf-report done results --edition v3 --division closed --submitter anl --system lustre",
            ("done is a job", "dlio-hpc mlperf-report results done")),
    Mistake("job to resume", "dlio-submit --resume done -s local --dry-run",
            ("--resume continues a study, but done is a job",)),
    Mistake("workload and job to resume", "dlio-submit demo --resume done",
            ("--resume continues a study, but done is a job",)),
    Mistake("no patience", "dlio-hpc check demo -s local --patience 0",
            ("'--patience': found '0'; use a time above 0",)),
)  # fmt: skip
# Habits from similar programs, and words that are missing.
HABITS = (
    *(Mistake(f"habit: {line}", f"dlio-hpc {line}", (f"did you mean '{meant}'?",)) for line, meant in {
        "archive delete x": "prune", "datasets rm npz": "remove", "baseline rm x": "retire", "datasets ls": "list",
        "squeue": "status", "scancel 1": "cancel", "baseline accept done -m why": "--message", "clean -n": "--dry-run",
        "archive prune a --keep 1d -n": "--dry-run", "datasets remove npz -n": "--dry-run",
    }.items()),
    *(Mistake(f"missing: {line}", f"dlio-hpc {line}", (means,)) for line, means in {
        "site-report": "'DIR': the folder that the web site is written to",
        "install-site": "'PREFIX': the folder to install to, such as /opt/dlio-hpc",
        "archive prune --keep 180d": "'DIR': the folder of archives",
        "archive share --group g": "the folder of archives",
        "baseline accept --message x": "'JOB': the name or the directory of a job",
        "report done --html": "requires an argument: --html FILE. Write the report as one HTML file",
        "history --openmetrics": "--openmetrics FILE. Write the newest job",
        "install-site sw --load": "--load MODULE. ",
    }.items()),
    *(Mistake(f"extra: {line}", f"dlio-hpc {line}", (means,)) for line, means in {
        "datasets list data": "the folder of datasets is given by an option: --data DIR",
        "datasets remove --all": "give the names of the datasets (dlio-hpc datasets list), or --unfinished",
        "baseline list done": "baseline show BASELINE", "baseline accept done done --message x": "give one job",
        "history demo-1 demo-2": "give one pattern, in quotes", "import a.yaml b.yaml": "with -o b.yaml",
        "datasets remove x --unfinished": "and not both",
    }.items()),
    Mistake("file for a schema", "dlio-hpc schema w.yaml", ("dlio-hpc check FILE",), _w(W)),
    Mistake("document for a schema", "dlio-hpc schema report", ("for the document of a command: --json-of COMMAND",)),
    *(Mistake(f"part of a file for a schema: {name}", f"dlio-hpc schema {name}", says) for name, says in {
        "metadata": ("metadata is a section of a workload with the keys files,", "dlio-hpc schema workload --text"),
        "reader": ("reader is a section of a workload", "below the line 'reader'"),
        "layout": ("layout is a section of a site profile", "dlio-hpc schema site --text"),
        "parts": ("parts is a section of a study", "below the line 'parts.NAME'"),
        "batch_size": ("reader.batch_size is a key of a workload", "grep -A3 reader.batch_size explains it"),
        "min_au": ("criteria.NAME.min_au is a key of a criteria file", "criteria --text | grep -A3 min_au"),
        "checkpoints": ("did you mean 'checkpoint'?",),
    }.items()),
    Mistake("two schemas", "dlio-hpc schema workload --json-of report",
            ("workload and --json-of report exclude each other",)),
    Mistake("option of record misspelt", "dlio-hpc record -o r --anonymus -- python p.py",
            ("record has no option --anonymus; did you mean '--anonymous'?",)),
    Mistake("ranks of record", "dlio-hpc record -o r -n 4 python p.py",
            ("record has no option -n; ranks are started by a launcher: dlio-hpc record -- mpiexec -n 4",)),
    Mistake("no such baseline to compare with, and what lists them", "dlio-hpc compare done --baseline nosuch",
            ("--baseline: no job or study 'nosuch'", "dlio-hpc baseline list lists the baselines")),
    Mistake("two jobs to compare", "dlio-hpc compare done done",
            ("To compare the second with the first: dlio-hpc compare done --baseline done",), code=4),
    Mistake("suite with criteria that do not exist", "dlio-submit --suite s.yaml -s local -d data --dry-run",
            ("s.yaml, line 4: verdict.criteria: there is no file /", "/contract.yml; correct its name"),
            {"s.yaml": "name: s\nworkload: demo\nparts: {a: {sweep: {reader.read_threads: [1, 2]}}}\n"
                       "verdict: {criteria: contract.yml}\n"}),
    Mistake("file that is no YAML file", "dlio-submit job.fio -s local --dry-run",
            ("job.fio", "fio"), {"job.fio": "[global]\nioengine=libaio\n[seqread]\nrw=read\n"}),
    Mistake("folder in place of a workload", "dlio-submit mine -s local --dry-run",
            ("no workload 'mine': mine is a folder; give a YAML file",), {"mine/w.yaml": W}),
    Mistake("workload without its suffix", "dlio-submit mine -s local --dry-run",
            ("no workload 'mine'; did you mean './mine.yaml'?",), {"mine.yaml": W}),
    Mistake("site without its suffix", "dlio-submit demo -s mycluster --dry-run",
            ("no site 'mycluster'; did you mean './mycluster.yaml'?",), {"mycluster.yaml": "name: mycluster\n"}),
    Mistake("study without its suffix", "dlio-submit --study threads -s local --dry-run",
            ("no study 'threads'; did you mean './threads.yaml'?",), {"threads.yaml": "name: threads\n"}),
    Mistake("folder to clean", "dlio-hpc clean -o nowhere", ("nowhere does not exist; give the folder of jobs",)),
)  # fmt: skip
# Commands that find nothing, and would do nothing.
NOTHING = (
    Mistake("site without archives", "dlio-hpc site-report site --archive empty", ("no archives in empty",),
            {"empty/x": ""}),
    Mistake("list of a folder that does not exist", "dlio-hpc datasets list -d nowhere",
            ("/nowhere, which does not exist; name the folder",)),
    Mistake("check of no dataset", "dlio-hpc datasets verify -d empty",
            ("/empty, so nothing was verified",), {"empty/x": ""}),
    Mistake("site of a doctor", "dlio-hpc doctor -s nosuchsite", ("dlio-hpc: no site 'nosuchsite'",), code=0),
)  # fmt: skip
# Faults of study files, and of criteria.
IN_STUDIES = (
    *(Mistake(f"in a study: {says}", f"dlio-submit --{kind} s.yaml -s local --dry-run", (says,), {"s.yaml": text})
      for kind, text, says in (
        ("study", STUDY.replace("read_threads", "threads"), "s.yaml, line 5: reader.threads=1: reader: unknown key"),
        ("study", STUDY.replace("demo", "demoo"), "s.yaml, line 2: no workload 'demoo'"),
        ("study", STUDY.replace("sweep", "workload: dem\n    sweep"), "s.yaml, line 5: no workload 'dem'"),
        ("suite", STUDY + "verdict: {criteria: acceptence}\n", "s.yaml, line 6: no criteria 'acceptence'"),
        ("study", "name: s\nworkload: demo\nparts: [a]\n", "use a mapping, such as {threads: {sweep: "),
        ("study", STUDY.replace("[1, 2]", "1,2,4"), "; write a list in brackets: reader.read_threads: [1, 2, 4]"),
        ("study", STUDY + "---\n" + STUDY, "the file has two documents (---); split it into two files"),
    )),
    Mistake("limit with its unit", "dlio-hpc accept done --criteria c.yaml",
            ("; in MB/s and without a unit: 5000",), _criteria("min_read_MBps: 5 GB/s")),
    Mistake("metric and limit apart", "dlio-hpc accept done --criteria c.yaml",
            ("a limit has the name of its metric, such as min_samples_per_s: 100",),
            _criteria("metric: samples_per_s, min: 100")),
)  # fmt: skip
EMPTY = {"a.darshan": ""}
# Darshan logs and archives that are something else.
LOGS = (
    *(Mistake(f"empty log, in {line.split()[0]}", f"dlio-hpc {line}",
              ("a.darshan is empty (0 bytes)", "ends in the usual way"), EMPTY, 3)
      for line in ("darshan a.darshan", "characterize a.darshan", "similarity done a.darshan")),
    Mistake("text of a log without its mark", "dlio-hpc darshan a.darshan", ("is the output of darshan-parser",),
            {"a.darshan": "darshan log version: 3.41\n"}, 3),
    Mistake("job as a log", "dlio-hpc darshan done",
            ("dlio-runs/done is a job of dlio-hpc; dlio-hpc report dlio-runs/done shows it",)),
    Mistake("log that is missing", "dlio-hpc similarity done nosuch.darshan",
            ("cannot read nosuch.darshan: there is no such file",)),
    Mistake("pattern of a shell for a log", "dlio-hpc darshan a.darshan --only '*.h5'",
            ("for files that end in .h5, write '[.]h5$'",), EMPTY),
    Mistake("gzip as an archive", "dlio-hpc archive list a.tar.gz",
            ("a.tar.gz is compressed with gzip, not an archive of a job",), {"a.tar.gz": b"\x1f\x8b\x08\x00aaaa"}),
    Mistake("history as an archive", "dlio-hpc archive verify dlio-runs/archive/history.db",
            ("history.db is a database, such as the history of the archives, not an archive",)),
    Mistake("empty archive", "dlio-hpc archive verify a.tar.zst", ("a.tar.zst: it is empty (0 bytes)",),
            {"a.tar.zst": ""}, 3),
    Mistake("import of an empty file", "dlio-hpc import u.yaml", ("u.yaml: the file is empty",), {"u.yaml": ""}),
    Mistake("workload of dlio_benchmark as a study", "dlio-submit --study u.yaml -s local --dry-run",
            ("u.yaml is a workload of dlio_benchmark; give it as dlio:./u.yaml",), IMPORTED),
)  # fmt: skip
# Failures of the system, and files whose kind is known.
SYSTEM = (
    Mistake("program misspelt", "dlio-hpc record -o r -- pyhton train.py",
            ("cannot run pyhton: it is not in PATH; did you mean 'python", )),
    Mistake("command line in quotes", "dlio-hpc record -o r 'python3 train.py'",
            ("leave out the quotes: dlio-hpc record -- python3 train.py",)),
    Mistake("notebook", "dlio-hpc record -o r -- ./train.ipynb",
            ("train.ipynb is a notebook", "jupyter nbconvert"), {"train.ipynb": "{}"}),
    Mistake("certificate as a key", "dlio-hpc baseline accept done --message ok --force --sign cert.pem",
            ("--sign cert.pem: the file is a certificate (PEM) and not an SSH key", "~/.ssh/id_ed25519"),
            {"cert.pem": "-----BEGIN CERTIFICATE-----\n"}),
    Mistake("compressed log", "dlio-hpc darshan a.darshan",
            ("a.darshan is compressed with gzip; decompress it: gunzip",),
            {"a.darshan": b"\x1f\x8b\x08\x00aaaaaaaaaaaaaaaa"}, 3),
    Mistake("text of a log", "dlio-hpc darshan a.darshan",
            ("a.darshan is the output of darshan-parser; give the log itself",),
            {"a.darshan": "# darshan log version: 3.41\n# compression method: ZLIB\n"}, 3),
    Mistake("import of a shipped workload", "dlio-hpc import cosmoflow",
            ("cosmoflow is a workload of dlio-hpc; run it: dlio-submit cosmoflow", "dlio:cosmoflow")),
    Mistake("criteria as a list", "dlio-hpc accept done --criteria c.yaml",
            ("criteria: found the list", "use a mapping, such as {busy: {min_au: 90%}}"),
            {"c.yaml": "name: c\ncriteria:\n- {min_au: 90%}\n"}),
    Mistake("column given twice", "dlio-hpc workloads w.yaml", ("columns: names must be unique; these occur twice: a",),
            _w("name: w\ndataset: {format: parquet, files: 8, samples_per_file: 4, "
               "columns: [{name: a, dtype: int8}, {name: a, dtype: int8}]}\n")),
    Mistake("limit on a metric of other workloads", "COLUMNS=300 dlio-hpc accept done --criteria c.yaml",
            ("demo never has create/s", "metadata workloads with create in metadata.phases, such as metadata_own"),
            _criteria("min_create_per_s: 1000"), 4),
    Mistake("limit without the level of names", "dlio-hpc accept done --criteria c.yaml",
            ("c.yaml, line 3: criteria.min_au: the level of names is missing; write criteria: {NAME: {min_au: 90%}}",),
            {"c.yaml": "name: c\ncriteria:\n  min_au: 90%\n"}),
    Mistake("limit at the top of criteria", "dlio-hpc accept done --criteria c.yaml",
            ("unknown key 'min_au'; did you mean 'criteria.NAME.min_au'?",), {"c.yaml": "name: c\nmin_au: 90%\n"}),
    Mistake("sweep without the level of names", "dlio-submit --study s.yaml -s local --dry-run",
            ("parts.sweep: the level of names is missing", "parts: {NAME: {sweep: {reader.read_threads: [1, 2]}}}"),
            {"s.yaml": STUDY.replace("  a:\n    sweep", "  sweep")}),
    Mistake("range in a study", "dlio-submit --study s.yaml -s local --dry-run",
            ("s.yaml, line 5: parts.a.sweep.reader.read_threads: the range 1..4*1 never ends",),
            {"s.yaml": STUDY.replace("[1, 2]", "1..4*1")}),
    Mistake("metadata workload as a study", "dlio-submit --study m.yaml -s local --dry-run",
            ("m.yaml is a workload; dlio-submit runs it. This command needs a study",),
            {"m.yaml": "name: m\nmetadata: {files: 100}\n"}),
    Mistake("metadata key of a workload with a dataset", DEMO + "-S metadata.files=10",
            ("a metadata workload makes operations on files of its own", "dlio-submit metadata_own measures")),
    Mistake("dataset key of a metadata workload",
            "dlio-submit metadata_own -s local --dry-run -S dataset.subfolders=10",
            ("reads no dataset", "metadata.depth and metadata.width make subfolders")),
    *(Mistake(f"{key} of a metadata workload", f"dlio-submit metadata_own -s local --dry-run -S {key}={value}",
              (f"{key}: a metadata workload has no dataset and reads no samples; leave {key} out",))
      for key, value in {"reader.direct": "true", "reader.load": "memory", "reader.transfer_size": "1MiB",
                         "reader.engine": "io_uring"}.items()),
    Mistake("inference key of a workload with a dataset", DEMO + "-S 'inference={users: 1, time: 9s, interval: 1s, "
            "prompt: {mean: 9}, answer: {mean: 9}}'",
            ("an inference workload has blocks of its own", "dlio-submit kv_cache_llama3_8b measures KV caches")),
    *(Mistake(f"{key}={value} of inference",
              f"dlio-submit kv_cache_llama3_8b -s local --dry-run -S inference.{key}={value}", says)
      for key, value, says in (
          ("capacity", "1MiB", ("capacity: found 1 MiB, which is less than a block (2 MiB); raise capacity",)),
          ("block_tokens", "10000", ("block_tokens: a block has 1.221 GiB, and at most 1 GiB are possible",)),
          ("capacity", "1GiB -S inference.file_layout=sequence",
           ("file_layout=sequence cannot be combined with capacity",)),
          ("block_tokens", "4000", ("which fill no block of 4,000; lower block_tokens",)),
          ("time", "0", ("time: requests need time to arrive; set it, such as 60 s",)),
          ("interval", "0", ("interval: set the mean time from an answer to the next request",)),
          ("users", "0", ("inference.users: found 0",)),
          ("interval", "1us", ("requests, and at most 1,000,000 are possible",)),
          ("prompt", "500", ("inference.prompt: found 500; use a mapping, such as {mean: 500",)),
          ("prompt.mean", "2000", ("mean: found 2000, which is not between min (16) and max (1000)",)),
          ("prompt.mean", "null", ("stdev needs mean",)),
          ("answer.max", "10", ("max: found 10, which is below min (16)",)),
          ("search.most", "2", ("search.most: found 2, which is less than users (4), the number of the first try",)),
          ("search", "64", ("inference.search: found 64; use a mapping, such as {most: 1024}",)),
          ("model", "llama", ("inference.model", "llama")),
          ("model", "'{layers: 1, kv_heads: 1, head_dim: 5}'",
           ("direct=true needs blocks of a multiple of 4096 bytes",)),
      )),
    *(Mistake(f"{key} beside inference", f"dlio-submit kv_cache_llama3_8b -s local --dry-run -S {key}", (says,))
      for key, says in (
          ("train.epochs=1 -S inference.search.most=9", "inference.search: each epoch tries one number of users"),
          ("train.steps=3", "inference: leave train.steps out; inference.time is the length of an epoch"),
          ("compute.time=1s", "compute.time has no effect on inference; set inference.prefill and inference.decode"),
          ("metadata.files=3", "metadata and inference exclude each other; use two workloads"),
      )),
    Mistake("size of an inference workload", "dlio-submit kv_cache_llama3_8b -s local --dry-run --dataset-size 1GiB",
            ("an inference workload has no dataset; set -S inference.users=N",)),
    Mistake("reader of checkpoints", "dlio-submit llama3_8b -s local --dry-run -S reader.direct=true",
            ("reader.direct: a workload that only writes checkpoints has no dataset",)),
    *(Mistake(f"nothing to generate: {name}", f"dlio-submit {name} -s local --dry-run --generate only",
              ("--generate only: ", why, "so there is nothing to generate; leave --generate out"))
      for name, why in {
          "metadata_own": "metadata_own is a metadata workload and has no dataset",
          "kv_cache_llama3_8b": "kv_cache_llama3_8b is an inference workload and has no dataset",
          "llama3_8b": "llama3_8b is a workload that only writes checkpoints",
          "demo -S dataset.format=null": "dataset.format=null stores no files",
      }.items()),
    *(Mistake(f"folder that does not exist: {name}", f"dlio-submit {name} -s local --dry-run -d none",
              ("--data ", "none does not exist; ", use), code=0)
      for name, use in {
          "kv_cache_llama3_8b": "an inference job creates this folder in ",
          "metadata_own": "a metadata job creates this folder in ", "llama3_8b": "and writes its checkpoints there",
          "demo": "a job that generates a dataset creates this folder in ",
          "demo -S dataset.format=null": "this workload stores nothing there",
      }.items()),
    Mistake("dataset that is missing, in a dry run", "dlio-submit demo -s local --dry-run --generate never -d .",
            ("note: without --dry-run, this command ends with exit code 2: no dataset npz-",
             "generate it with --generate auto"), code=0),
    Mistake("folder that is missing here, in a dry run",
            "dlio-submit demo -s perlmutter -A m1 --dry-run --generate never -d none",
            ("none does not exist here; with --generate never, no job generates its dataset",
             "a job without it ends with exit code 2"), code=0),
    Mistake("bytes that no phase writes", "dlio-submit metadata_own -s local --dry-run -S metadata.bytes=4KiB",
            ("bytes: only the phase write writes them; add write to phases, or set bytes to 0",)),
    Mistake("levels of subfolders as text", DRY,
            ("dataset.subfolders: found '10x100'; use a number, such as 1000, or",),
            _w(W.replace("files: 8,", "files: 8, subfolders: 10x100,"))),
    Mistake("variable in single quotes", "dlio-submit demo -s local -d '$SCRATCH/x' --dry-run",
            ("--data", "$SCRATCH/x: the shell did not replace the variable", "double quotes")),
    Mistake("phases without brackets", "dlio-submit metadata_own -s local --dry-run -S metadata.phases=create,stat",
            ("metadata.phases: found text 'create,stat'; use a list",)),
    Mistake("layout of directories where there is no Lustre", DEMO + "-d . -S site.layout.directories.count=4",
            ("which is not Lustre: site.layout will not be set",), code=0),
    Mistake("nodes as qsub has them", DEMO + "-l select=2", ("No such option '-l'", "--nodes")),
    Mistake("interpreter that is not here, for a local job", "dlio-hpc check demo -s local -d . --no-launch "
            "-S site.python=/opt/none/python3",
            ("fault  python        /opt/none/python3, which the site profile names (python), is not a program on ",
             "correct python in the profile"), code=6),
    Mistake("interpreter that is not here", "dlio-hpc check demo -s site.yaml -d . --no-launch",
            ("note   python        /opt/none/python3, which the site profile names (python), is not a program on ",
             "ranks start only where it exists"), _site("python: /opt/none/python3\n"), 6),
    Mistake("folder that check would create", "dlio-hpc check demo -s local -d nowhere --no-launch",
            ("note   folders", "nowhere does not exist"), code=0),
)  # fmt: skip

EXISTING_FILES = (
    "name: w\ndataset: {format: raw, existing: 'train/*', files: 8, samples_per_file: 3, sample: {bytes: 1 MiB}}\n"
)
OWN_DATA = SITE.replace("slurm", "local").replace("kind: srun, command: srun", "kind: hydra, command: mpiexec")
FIO = "[global]\nioengine=libaio\niodepth=16\n[read]\nrw=randread\nbs=4k\n"

IN_FILES = (
    Mistake("library to preload that does not exist", "dlio-submit demo -s local -d . -S site.preload=[/opt/nope.so]",
            ("site.preload: /opt/nope.so: No such file or directory on ", "correct preload in the profile"), code=6),
    Mistake("library to preload that is none", "dlio-submit demo -s local -d . -S site.preload=[/etc/passwd]",
            ("site.preload: /etc/passwd is not an ELF library; correct preload",), code=6),
    Mistake("interpreter that does not exist", "dlio-submit demo -s local -d . -S site.python=/opt/none/python3",
            ("/opt/none/python3, which the site profile names (python), is not a program on ",
             "correct python in the profile"), code=6),
    Mistake("sizes of existing files", "dlio-submit w.yaml -s local -d . --dry-run",
            ("note: w.yaml: dataset.files, dataset.samples_per_file, dataset.sample: no effect with dataset.existing",
             "leave them out"), {"w.yaml": EXISTING_FILES, "train/a": "hello"}, 0),
    *(Mistake(f"fraction with a percent sign, {key}", "dlio-hpc accept done --criteria c.yaml",
              (f"criteria.io.{key}: found '0.9%', which is 0.009; write 90% or 0.9, or 0.009 if the limit",),
              _criteria(f"{key}: 0.9%")) for key in ("min_au", "min_au_mlperf", "min_scaling_efficiency")),
    Mistake("request size without its unit", DEMO + "-S reader.transfer_size=1",
            ("note: reader.transfer_size is 1 B, so a sample of 1 MiB takes 1,048,576 requests",
             "if KiB or MiB are meant, write 1KiB or 1MiB"), code=0),
    Mistake("thousands of requests for a sample",
            DEMO + "-S reader.transfer_size=512 -S 'dataset.sample={bytes: 16MiB}'",
            ("note: reader.transfer_size is 512 B, so a sample of 16 MiB takes 32,768 requests",), code=0),
    Mistake("request size of checkpoints without its unit", DEMO + "-S checkpoint.model_bytes=1MiB "
            "-S checkpoint.every_steps=1 -S checkpoint.transfer_size=4",
            ("note: checkpoint.transfer_size is 4 B: requests are very small", "write 4KiB or 4MiB"), code=0),
    Mistake("seconds for milliseconds, and no time for them", DRY,
            ("--time 1:00:00 is too short", "(compute.time)", "compute.time is 900 s; if milliseconds are meant"),
            _w(W + "compute: {time: 900}\ntrain: {epochs: 20}\n")),
    Mistake("variable of a profile", "dlio-submit demo -s site.yaml --dry-run",
            ("site.yaml, line 6: data is /scratch/$NOSUCH/dlio, but $NOSUCH is not set in this environment",),
            {"site.yaml": OWN_DATA + "data: /scratch/$NOSUCH/dlio\n"}),
    Mistake("variables of a profile for datasets", "dlio-hpc datasets list -s site.yaml",
            ("site.yaml, line 6: data is /$NOSUCH/${NONE}, but $NOSUCH, ${NONE} are not set in this environment",),
            {"site.yaml": OWN_DATA + "data: /$NOSUCH/${NONE}\n"}),
    Mistake("variable of -S", "dlio-submit demo -s local --dry-run -S 'site.data=/x/$NOSUCH'",
            ("-S site.data=/x/$NOSUCH: data is /x/$NOSUCH, but $NOSUCH is not set",)),
    Mistake("layout where there will be no Lustre", DEMO + "-d new -S site.layout.stripe_count=8",
            ("new is on ", "which is not Lustre: site.layout will not be set"), code=0),
    Mistake("layouts where there is no Lustre", DEMO + "-d new -P site.layout.stripe_count=1,8",
            ("site.layout.stripe_count: ", "new is on ", "not Lustre, so no layout can be set", "vary other keys")),
    Mistake("job file of fio", "dlio-hpc import job.fio",
            ("job.fio: a job file of fio (INI), not YAML", "bs is reader.transfer_size"), {"job.fio": FIO}),
    Mistake("job file of fio to submit", "dlio-submit ./job.fio --dry-run", ("a job file of fio (INI)",),
            {"job.fio": "; comment\n\n" + FIO}),
    Mistake("several unknown keys", DRY,
            ("w.yaml, line 3: reader: unknown key 'num_workers'; did you mean 'read_threads'?",
             "also unknown: reader.shuffling (did you mean 'shuffle'?), train.epoch (did you mean 'epochs'?)"),
            _w(W + "reader: {num_workers: 4, shuffling: 1}\ntrain: {epoch: 2}\n")),
    Mistake("several unknown keys of a profile", OWN, ("unknown key 'ppn'", "also unknown: nodes"),
            _site("ppn: 4\nnodes: 2\n")),
)  # fmt: skip

LOST = (
    *(
        Mistake(
            f"option for a value: {line}",
            f"dlio-hpc {line}",
            (f"{option} takes a value, but '{value}' is an option", f"if it is the value, write {long}={value}"),
        )
        for line, option, value, long in (
            ("submit demo -s local -d --dry-run", "-d", "--dry-run", "--data"),
            ("submit demo -s local -o --wait", "-o", "--wait", "--runs"),
            ("submit demo -s slurm -A --dry-run", "-A", "--dry-run", "--account"),
            ("submit demo -s slurm -A -slurm", "-A", "-slurm", "--account"),
            ("submit demo -s slurm -A --dryrun", "-A", "--dryrun", "--account"),
            ("submit demo -s polaris -A p -d . -q --dry-run", "-q", "--dry-run", "--queue"),
            ("submit demo -s local -J --dry-run", "-J", "--dry-run", "--job-option"),
            ("submit demo -s local --archive --nodes=4", "--archive", "--nodes=4", "--archive"),
            ("submit demo -s local --existing -d", "--existing", "-d", "--existing"),
            ("report done --html --json", "--html", "--json", "--html"),
            ("report done --figures -h", "--figures", "-h", "--figures"),
            ("accept done --criteria nightly --junit --json", "--junit", "--json", "--junit"),
            ("baseline accept done --message --json", "--message", "--json", "--message"),
            ("sites new my --to --json", "--to", "--json", "--to"),
            ("import d.yaml -o --json", "-o", "--json", "--output"),
            ("history --openmetrics --csv", "--openmetrics", "--csv", "--openmetrics"),
            ("archive extract a.tar.zst --to --json", "--to", "--json", "--to"),
            ("--log-file --help", "--log-file", "--help", "--log-file"),
            ("status --log-file --json", "--log-file", "--json", "--log-file"),
        )
    ),
    Mistake(
        "option for the second value",
        DEMO + "--ab old --wait",
        ("--ab takes 2 values (DIR_A DIR_B), but '--wait' is an option", "give both"),
    ),
    Mistake("dash that is the value", DEMO + "--account=--x -d ./--wait", ("--account: no effect",), code=0),
    Mistake(
        "option of the batch system is no lost value",
        "dlio-submit demo -s slurm -d . --dry-run -J --hold -J -H",
        ("#SBATCH --hold", "#SBATCH -H"),
        code=0,
    ),
    *(
        Mistake(f"= after a short option: {given}", DEMO + given, (f"{given}: write {right}",))
        for given, right in {
            "-A=proj": "-A proj or --account=proj",
            "-q=debug": "-q debug or --queue=debug",
            "-d=data": "-d data or --data=data",
            "-o =runs": "-o runs or --runs=runs",
            "-s=local": "-s local or --site",
            "-t=30": "-t 30 or --time=30",
            "-S=train.epochs=2": "-S train.epochs=2 or --set=train.epochs=2",
        }.items()
    ),
    Mistake("= without a value", DEMO + "-A=", ("-A= has no value, perhaps because a variable is not set",)),
    *(
        Mistake(
            f"empty value: {line}", f"dlio-hpc {line}", ("the value is empty, perhaps because a variable is not set",)
        )
        for line in (
            "submit demo -s '' -d .",
            "submit demo -s slurm -A '' -d . --dry-run",
            "submit demo --suite ''",
            "submit demo -S ''",
            "report ''",
            "cancel ''",
            "compare done --baseline ''",
            "history --site ''",
            "submit ''",
            "submit demo --seed ''",
            "baseline accept done --message ''",
        )
    ),
    Mistake("empty log", "dlio-hpc status --log-file ''", ("--log-file is empty",)),
    *(
        Mistake(f"other dash: {dash!r}", DEMO + dash, (f"{dash} begins with another sign ({sign})", f"write {right}"))
        for dash, sign, right in (
            ("\u2013dry-run", "en dash, U+2013", "--dry-run"),
            ("\u2014wait", "em dash, U+2014", "--wait"),
            ("\u2212d", "minus sign, U+2212", "-d"),
            ("-\u2013nodes=2", "en dash, U+2013", "--nodes=2"),
        )
    ),
    *(
        Mistake(
            f"quotation marks of a document: {word}",
            DEMO + word,
            (f"{word.split()[-1]} has quotation marks", f"write {right}"),
        )
        for word, right in {
            "-S \u201creader.read_threads=4\u201d": "'reader.read_threads=4'",
            "--existing \u2018*.npz\u2019": "'*.npz'",
        }.items()
    ),
    Mistake(
        "user without a home",
        DEMO + "--data=~nosuchuser/x",
        ("the home folder ~nosuchuser is not known", "for a file or folder of this name: ./~nosuchuser/x"),
    ),
    *(
        Mistake(f"~ of the home folder: {line}", f"HOME=/proc/me {line}", ("/proc/me",), code=code)
        for line, code in {
            DEMO + "--data=~/x": 0,
            DEMO + "--runs=~/x": 0,
            "DLIO_HPC_DATA=~/x " + DEMO: 0,
            "dlio-submit demo --site=~/x.yaml": 2,
            "dlio-hpc report '~/x'": 2,
            "dlio-submit '~/x.yaml' -s local": 2,
            "dlio-submit 'dlio:~/x.yaml' -s local": 2,
            "DLIO_HPC_SITE_PATH=~/x " + DEMO: 2,
            "DLIO_HPC_DLIO_CONFIGS=~/x dlio-submit dlio:a": 2,
            "DLIO_HPC_LOG_FILE=~/x dlio-hpc status": 2,
        }.items()
    ),
    Mistake(
        "key given twice",
        DEMO + "-S reader.read_threads=2 -S reader.read_threads=4",
        ("note: -S reader.read_threads=2 has no effect: a later one sets 4",),
        code=0,
    ),
    Mistake(
        "key given twice, in datasize",
        "dlio-hpc datasize demo -N 1 --ppn 1 --memory 1GiB -S a=2 -S a=4",
        ("note: -S a=2 has no effect: a later one sets 4", "unknown key 'a'"),
    ),
    Mistake("key given twice with one value", DEMO + "-S reader.read_threads=2 -S reader.read_threads=2", (), code=0),
    *(
        Mistake(f"form of dlio_benchmark: {text}", DEMO + text, (advice,))
        for text, advice in {
            "++workload.reader.read_threads=4": "-S reader.read_threads=4",
            "+reader.read_threads=4": "-S reader.read_threads=4",
            "workload.reader.read_threads=4": "-S reader.read_threads=4",
            "dataset.num_files_train=4": "-S dataset.files=4",
            "+workload.workflow.generate_data=on": "instead of workflow.generate_data: --generate auto (the default)",
            "++workload.dataset.data_folder=/a": "instead of dataset.data_folder: --data /a",
            "++workload.no.such=1": "workloads have no key no.such; dlio-hpc schema workload --text lists the keys",
            "'~workload.train.epochs'": "a key cannot be removed; leave train.epochs out of a copy of the workload",
            "workload=unet3d_h100": "a workload is given by its name alone, unet3d_h100 or, with the file of "
            "dlio_benchmark, dlio:unet3d_h100",
            "-S workload.dataset.num_files_train=8": "form of dlio_benchmark; use: -S dataset.files=8",
            "-S ++reader.odirect=true": "use: -S reader.direct=true",
            "-P workload.reader.read_threads=1,2": "use: -P reader.read_threads=1,2",
        }.items()
    ),
)

BLANKS = (
    *(
        Mistake(
            f"other blank {name}",
            DRY,
            (f"w.yaml, line 2: {sign} in place of a blank; type a blank",),
            _w(W.replace("dataset: ", text, 1)),
        )
        for name, text, sign in (
            ("after a colon", "dataset:\u00a0", "no-break space (U+00A0)"),
            ("before a key", "\u00a0dataset: ", "no-break space (U+00A0)"),
            ("of an ideograph", "dataset: \u3000", "ideographic space (U+3000)"),
        )
    ),
    Mistake(
        "other blank of a key below",
        DRY,
        ("w.yaml, line 3: no-break space (U+00A0) in place of a blank",),
        _w("name: w\ndataset:\n\u00a0 format: npz\n"),
    ),
    Mistake(
        "other blank at the end", DRY, ("w.yaml, line 1: no-break space (U+00A0)",), _w(W.replace("w\n", "w\u00a0\n"))
    ),
    Mistake("other blank in an option", DEMO + "-S 'reader.loader=native\u00a0'", ("no-break space (U+00A0)",)),
    Mistake(
        "other blank in a text", DRY, (), _w(W + "description: 'a\u00a0b' # \u00a0 c\u00a0\nsource: a\u00a0b\n"), 0
    ),
)

NEARBY = (
    Mistake(
        "file with another ending",
        "dlio-submit ./w.yml -s local --dry-run",
        ("cannot read w.yml: there is no such file; did you mean 'w.yaml'?",),
        _w(W),
    ),
    Mistake(
        "file misspelt",
        "dlio-submit work/unet.yaml -s local --dry-run",
        ("did you mean 'work/unet3d.yaml'?",),
        {"work/unet3d.yaml": W},
    ),
    Mistake(
        "name with an ending",
        "dlio-submit demo.yaml -s local --dry-run",
        ("there is no such file; did you mean the workload 'demo'?",),
    ),
    Mistake(
        "site with an ending",
        "dlio-submit demo -s perlmutter.yaml --dry-run",
        ("there is no such file; did you mean the site 'perlmutter'?",),
    ),
    Mistake(
        "pipe as in other programs",
        "dlio-submit - -s local --dry-run",
        ("to read the file from a pipe, give /dev/stdin",),
    ),
    *(
        Mistake(
            f"folder of archives for jobs: {verb}",
            f"dlio-hpc {verb} -o dlio-runs/archive",
            ("dlio-runs/archive is a folder of archives; give the folder of jobs with --runs: dlio-runs",),
        )
        for verb in ("status", "collect", "history", "baseline list")
    ),
    Mistake(
        "file that is like no other",
        "dlio-submit zzz.yaml -s local --dry-run",
        ("cannot read zzz.yaml: No such file or directory",),
    ),
    Mistake(
        "workload as a site",
        "dlio-submit ./w.yaml -s ./w.yaml --dry-run",
        ("w.yaml is a workload", "This command needs a site profile (option -s)"),
        _w(W),
    ),
    Mistake(
        "folder of datasets for jobs",
        DEMO + "-d sets -o sets",
        ("--runs sets is a folder of datasets; give a folder outside of it",),
        {"sets/npz-1/dlio-dataset.json": "{}"},
    ),
    Mistake(
        "folder of jobs for archives, in compare",
        "dlio-hpc compare done --archive dlio-runs",
        ("dlio-runs is a folder of jobs", "give the folder of archives with --archive: dlio-runs/archive"),
    ),
)

# Keys, launchers and names that do not fit each other.
_PAIR = {kind: SITE.replace("{kind: srun, command: srun}", f"{{kind: {kind}, command: {kind}}}")
         for kind in ("aprun", "flux", "srun")}  # fmt: skip
_TYPOS = ("model: {name: unet3d}\nframework: pytorch\nworkflow: {train: True}\n"
          "dataset: {format: npz, num_files_train: 16, num_samples_per_file: 1, record_length_byte: 1048576}\n"
          "reader: {data_loader: pytorch, batch_size: 4, read_thread: 4}\n")  # fmt: skip
# First 40 bytes of an archive, and no more.
_CUT = b"\x28\xb5\x2f\xfd\x04\x58\x01\x00" + bytes(32)
PAIRS = (
    Mistake("launcher of Cray on Slurm", OWN,
            ("site.yaml, line 3: launcher.kind=aprun with scheduler=slurm: aprun starts ranks in jobs of PBS or Cobalt",
             "kinds that work with scheduler=slurm: srun, mpiexec, hydra, openmpi"), {"site.yaml": _PAIR["aprun"]}),
    *(Mistake(f"launcher of Slurm on {name}", OWN,
              (f"launcher.kind=srun with scheduler={name}: srun starts ranks in jobs of Slurm", f"{name}: {kinds}"),
              {"site.yaml": _PAIR["srun"].replace("slurm", name)})
      for name, kinds in {"pbs": "pals, aprun, mpiexec", "cobalt": "aprun, mpiexec"}.items()),
    Mistake("launcher that may be in another batch system", OWN + " --generate auto",
            ("note: launcher.kind=flux with scheduler=slurm: flux starts ranks in jobs of Flux, not of Slurm",),
            {"site.yaml": _PAIR["flux"]}, 0),
    Mistake("profile with such a launcher", "dlio-hpc sites site.yaml",
            ("note: launcher.kind=flux with scheduler=slurm",), {"site.yaml": _PAIR["flux"]}, 0),
    Mistake("launcher of a batch system without one", DEMO + "-S site.launcher.kind=srun -S site.launcher.command=srun",
            ("note: launcher.kind=srun with scheduler=local", "only if this shell is inside a job of Slurm"), code=0),
    Mistake("kind of another command", OWN,
            ("site.yaml, line 3: launcher.kind=srun writes options that mpirun, the launcher.command, does not have",
             "set command to srun, or use a kind for mpirun: mpiexec, hydra, openmpi"),
            {"site.yaml": SITE.replace("command: srun", "command: mpirun")}),
    Mistake("options in a command", OWN,
            ("site.yaml, line 3: launcher.command has options; write command: srun, and options: [--mpi=pmix, -v]",),
            {"site.yaml": SITE.replace("command: srun", "command: srun --mpi=pmix -v")}),
    *(Mistake(f"{key} of {name}", f"dlio-submit {name} -s local --dry-run -S {key}={value}",
              (f"-S {key}={value}: {key}: {kind} has no dataset and reads no samples; leave {key} out",))
      for name, kind in {"metadata_own": "a metadata workload", "kv_cache_llama3_8b": "an inference workload",
                         "llama3_8b": "a workload that only writes checkpoints"}.items()
      for key, value in {"reader.read_threads": "4", "reader.loader": "pytorch", "reader.batch_size": "8"}.items()),
    Mistake("reader of a metadata workload in a file", DRY,
            ("w.yaml, line 5: reader.read_threads: a metadata workload has no dataset",),
            _w("name: w\nmetadata: {files: 10}\nreader:\n  batch_size: 1\n  read_threads: 8\n")),
    *(Mistake(f"{key} has no effect", f"dlio-submit {name} -s local --dry-run -S {key}={value}", (f"note: {says}",),
              code=0)
      for name, key, value, says in (
          ("metadata_own", "reader.drop_cache", "true", "reader.drop_cache: no effect, because a metadata workload"),
          ("metadata_own", "metadata.fsync", "true", "metadata.fsync: no effect without the phase write"),
          ("metadata_own", "metadata.shift_nodes", "2", "metadata.shift_nodes: no effect on a single node"),
          ("kv_cache_llama3_8b", "inference.users", "1", "inference.users=1: fewer users than ranks"),
          ("kv_cache_llama3_8b --ppn 1 -S inference.users=20", "inference.slots", "8",
           "inference: computation alone keeps 7.5 of 8 slots"),
          ("kv_cache_llama3_8b", "inference.memory", "1MiB", "inference.memory: no effect, because a block has 2 MiB"),
          ("kv_cache_llama3_8b --ppn 1 -S inference.system_prompt=0", "inference.turns", "1",
           "inference: no request has a history of a full block"),
          ("llama3_8b", "checkpoint.by", "all", "checkpoint.by: no effect with checkpoint.model"),
          ("demo", "checkpoint.precision.weights", "fp32", "checkpoint.precision: no effect without checkpoint.model"),
          ("demo", "reader.preprocess_threads", "4", "reader.preprocess_threads: no effect without reader.preprocess"),
          ("demo", "compute", "{mode: spin, time: 0}", "compute.mode=spin: no effect without compute.time"),
          ("demo", "site.depth", "2", "site.depth: no effect with launcher.kind=mpiexec")) for value in [f"'{value}'"]),
    Mistake("order of nothing", DRY, ("note: reader.shuffle.seed, reader.shuffle.reseed: no effect without",),
            _w(W + "reader: {shuffle: {seed: 4}}\n"), 0),
    Mistake("keys of an imported folder misspelt", "dlio-hpc import u",
            ("misspelt: dataset.record_length_byte, reader.read_thread",), {"u/u.yaml": _TYPOS}, 0),
    Mistake("misspelt keys of dlio_benchmark", "dlio-submit dlio:./u.yaml -s local --dry-run",
            ("note: dlio:./u.yaml: reader.read_thread: 4: ignored (did you mean 'read_threads'?",),
            {"u.yaml": _TYPOS}, 0),
    Mistake("corrupted archive without a job", "dlio-hpc archive verify gone.tar.zst",
            ("gone.tar.zst: ", "Copy gone.tar.zst again from the folder where the job was archived"),
            {"gone.tar.zst": _CUT}, 3),
    Mistake("corrupted archive with its job", "dlio-hpc archive verify r/archive/old.tar.zst",
            ("To archive the job again: mv r/archive/old.tar.zst r/archive/old.tar.zst.bad && dlio-hpc collect ",),
            {"r/archive/old.tar.zst": _CUT, "r/old/job.json": ""}, 3),
    Mistake("range of nodes in a study", "dlio-submit --study s.yaml -s local --dry-run",
            ("s.yaml, line 3: nodes: '1-4' is not a value; write a range as 1..4",),
            {"s.yaml": STUDY.replace("parts", "nodes: 1-4\nparts")}),
    Mistake("nodes of a study on a laptop", "dlio-submit --study s.yaml -s local --dry-run",
            ("s.yaml, line 3: --nodes 2: site local allows at most 1",),
            {"s.yaml": STUDY.replace("parts", "nodes: [1, 2]\nparts")}),
    Mistake("nodes in a sweep", "dlio-submit --study s.yaml -s local --dry-run",
            ("s.yaml, line 5: nodes is no key of a workload; write nodes next to sweep, not in it",),
            {"s.yaml": STUDY.replace("{reader", "{nodes: [1, 2], reader")}),
    Mistake("zip of two lengths in a study", "dlio-submit --study s.yaml -s local --dry-run",
            ("s.yaml, line 6: --zip needs lists of equal length: reader.read_threads has 2, reader.batch_size has 1",),
            {"s.yaml": STUDY.replace("2]}", "2], reader.batch_size: [1]}") + "    zip: true\n"}),
    Mistake("settings separated by commas",
            "DLIO_HPC_SET=reader.batch_size=2,reader.read_threads=4 dlio-submit demo -s local --dry-run",
            ("dlio-submit: the environment variable DLIO_HPC_SET: reader.batch_size=2,reader.read_threads=4: ",
             r"each setting needs its own line: DLIO_HPC_SET=$'reader.batch_size=2\nreader.read_threads=4'")),
    Mistake("size of a dataset as a key", DEMO + "-S dataset.size=1GiB",
            ("unknown key 'size'; the size is files x samples_per_file x sample.bytes", "--dataset-size SIZE")),
    Mistake("size of a checkpoint", DEMO + "-S checkpoint.bytes=1GiB", ("did you mean 'model_bytes'?",)),
    Mistake("checkpoints of each epoch", DEMO + "-S checkpoint.every_epoch=1", ("a checkpoint is written after",)),
    Mistake("binding of another launcher", OWN + " -S site.launcher.bind=core",
            ("note: launcher.bind=core is a word of another launcher; launcher.kind=srun has cores",), _site(""), 0),
    Mistake("profile of TensorFlow without samples", "dlio-submit metadata_own -s local --dry-run --tf-profile",
            ("--tf-profile: a metadata workload reads no samples; omit --tf-profile",)),
    Mistake("not to wait", DEMO + "--no-wait", ("dlio-submit does not wait unless --wait is given",)),
    Mistake("site misspelt in defaults", "DLIO_HPC_SITE_PATH=h dlio-submit demo --dry-run",
            ("no site 'loca'; did you mean 'local'?", "(loca is from ", "h/defaults.yaml)"),
            {"h/defaults.yaml": "site: loca\n"}),
    Mistake("profiles without their folder", "DLIO_HPC_SITE_PATH=f dlio-hpc sites",
            ("f has x.yaml itself, but none of the folders that are searched; move site profiles to ",),
            {"f/x.yaml": SITE}),
    Mistake("key of an import without a value", "dlio-hpc import u.yaml reader.batch_size",
            ("not 2: u.yaml reader.batch_size; write ++workload.reader.batch_size=VALUE",), {"u.yaml": _TYPOS}),
    Mistake("JSON of a schema", "dlio-hpc schema workload --json", ("schema prints JSON, unless --text is given",)),
    Mistake("option like no other, of few", "dlio-hpc datasets verify -d . --fastest",
            ("No such option '--fastest'; this command has --data, ",)),
    *(Mistake(f"number for {key} of {name}", f"dlio-submit {name} -s local --dry-run -S {key}=4",
              (f"-S {key}=4: {key}: found 4; use a mapping",))
      for name in ("metadata_own", "llama3_8b") for key in ("reader", "compute", "train")),
    Mistake("evaluation of too many files", DEMO + "-S evaluation.files=9007199254740992",
            ("evaluation.files: dataset too large: at most 2^53 samples",)),
    Mistake("ranks of a model", "dlio-submit llama3_8b -s local --dry-run -S checkpoint.parallelism.data=10000000",
            ("checkpoint: parallelism: tensor x pipeline x data is at most 100,000 ranks",)),
    Mistake("checkpoint of an exabyte", DEMO + "-S checkpoint.model_bytes=1000000TB",
            ("a file of a checkpoint has at most 1 PiB; lower model_bytes or files",)),
    *(Mistake(f"option {name} as a key", DEMO + f"-S {name}=x",
              (f"unknown key '{name}'; did you mean the option --{name.replace('_', '-')}",))
      for name in ("site", "time", "repeat", "data", "dataset_size")),
    Mistake("name of a workload that no file can have", f"dlio-submit {'a' * 300} -s local --dry-run",
            ("no workload aaaa", "a name has at most 255 bytes")),
    Mistake("one file for two outputs", "dlio-hpc history --openmetrics x --xdmod ./x",
            ("'--xdmod': ./x is also the file of --openmetrics; give two files",)),
    Mistake("metric that a job does not have", "dlio-hpc compare done --metric restore_s --force",
            ("is unknown or 0 in this job, which has samples_per_s",)),
    Mistake("pattern of jobs in quotes", "dlio-hpc cancel 'do*'",
            ("no job or study 'do*'", "it is a pattern: write dlio-runs/do* without quotes")),
    Mistake("file as the folder of jobs", "dlio-hpc report x -o two.h5", ("two.h5 is a file; give the folder",)),
    Mistake("folder of reports left out",
            "dlio-hpc mlperf-report done --edition v3 --division closed --submitter x --system y",
            ("give the folder to write, and then the jobs: dlio-hpc mlperf-report DIR JOB",)),
)  # fmt: skip

# Mappings that replace a section, with the keys of the workload that they leave out.
_REPLACED = ("reader: the mapping replaces the whole section", "reader.read_threads, reader.shuffle; to keep them, ")
_IN_SET = {"s.yaml": STUDY.replace("sweep: {reader.read_threads: [1, 2]}", "set: {reader: {batch_size: 8}}")}
_TEXT_LIST = {"s.yaml": STUDY.replace("[1, 2]", "'1,2,4'")}
SECTIONS = (
    Mistake("section of -S", DEMO + "-S 'reader={batch_size: 8}'",
            ("note: -S reader: the mapping", *_REPLACED, "single keys: -S reader.batch_size=8"), code=0),
    Mistake("section of a study", "dlio-submit --study s.yaml -s local --dry-run",
            ("note: s: parts.a.set.reader: the mapping", *_REPLACED, "single keys: reader.batch_size: 8"), _IN_SET, 0),
    Mistake("section of a sweep", DEMO + "-P 'reader={batch_size: 8},{batch_size: 16}'",
            ("note: sweep.reader: the mapping", *_REPLACED), code=0),
    Mistake("section in a section", "dlio-submit w.yaml -s local --dry-run -S 'reader.shuffle={samples: true}'",
            ("note: -S reader.shuffle: the mapping", "reader.shuffle.seed; ", "-S reader.shuffle.samples=true"),
            _w(W + "reader: {shuffle: {files: true, samples: true, seed: 3}}\n"), 0),
    Mistake("section of warm-ups", "dlio-submit --study s.yaml -s local --dry-run",
            ("note: warmup_set.reader: the mapping",),
            {"s.yaml": STUDY.replace("parts", "warmup_set: {reader: {verify_content: all}}\nparts")}, 0),
    *(Mistake(f"value of a section: {setting}", DEMO + f"-S {setting}", (f"to set one of its keys: -S {meant}",))
      for setting, meant in {
          "reader.shuffle=true": "reader.shuffle.files=true", "reader=4": "reader.queue_depth=4",
          "checkpoint=true": "checkpoint.", "train=3": "train.epochs=3",
      }.items()),
    Mistake("value of a section of the site", MACHINE + "-S site.launcher=srun",
            ("to set one of its keys: -S site.launcher.kind=srun",)),
    Mistake("list as text in a study", "dlio-submit --study s.yaml -s local --dry-run",
            ("s.yaml, line 5: parts.a.sweep.reader.read_threads: found text '1,2,4'; use a list [1, 2, 4], or a ",),
            _TEXT_LIST),
    *(Mistake(f"{key} in -P", DEMO + f"-P {key}={values}",
              (f"-P {key}={values}: {key} is no key of a workload; use the option {option} {values}",))
      for key, values, option in (
          ("nodes", "1,2", "--nodes"), ("ppn", "4,8", "--ppn"), ("ranks_per_node", "1..8*2", "--ppn"))),
    Mistake("level without compression", DEMO + "-S dataset.level=4",
            ("level=4 needs compression=gzip or zlib, not none",)),
)  # fmt: skip
_TO = "to extract into a folder: --to unpacked"
_NO_VERB = "needs no further verb: leave"
WORDS = (
    Mistake("folder that does not exist after an archive", "dlio-hpc archive extract a.tar.zst unpacked",
            ("unpacked does not exist, and nothing is extracted", _TO), {"a.tar.zst": _CUT}),
    Mistake("archive that does not exist after an archive", "dlio-hpc archive extract a.tar.zst x.tar.zst",
            ("cannot read x.tar.zst",), {"a.tar.zst": _CUT}),
    *(Mistake(f"verb of a list: {line}", f"dlio-hpc {line}", (says,)) for line, says in {
        "sites show perlmutter": "no site profile 'show'; to print a site profile: dlio-hpc sites perlmutter",
        "workloads show demo": "no workload 'show'; to print a workload: dlio-hpc workloads demo",
        "sites perlmutter polaris": "give one site profile: dlio-hpc sites perlmutter",
        "workloads demo ffn": "give one workload: dlio-hpc workloads demo",
    }.items()),
    *(Mistake(f"file as the folder of jobs: {line}", f"dlio-hpc {line} -o two.h5",
              ("'--runs': two.h5 is a file; give the folder of jobs, such as dlio-runs",))
      for line in ("status", "history", "collect", "wait", "cancel --all", "clean", "compare done", "top",
                   "accept done", "datasets remove x")),
    Mistake("file as the folder of jobs in a variable", "DLIO_HPC_RUNS=two.h5 dlio-hpc status",
            ("the environment variable DLIO_HPC_RUNS: two.h5 is a file; give the folder of jobs",)),
    *(Mistake(f"verb of another tool: {word}", f"dlio-hpc {word} done", (f"did you mean '{verb}'?",))
      for word, verb in {
          "show": "report", "info": "report", "cat": "report", "logs": "report", "plot": "report", "ls": "status",
          "list": "status", "rm": "cancel", "stop": "cancel", "kill": "cancel", "start": "submit", "run": "submit",
          "diff": "compare", "watch": "top", "validate": "check", "trend": "history"}.items()),
    *(Mistake(f"verb of dlio-submit: {line}", f"dlio-submit {line}", (f"dlio-submit {_NO_VERB} '{word}' out",))
      for line, word in {"submit demo": "submit", "run demo": "run", "-s local submit": "submit"}.items()),
    Mistake("verb twice", "dlio-hpc submit submit demo", (f"dlio-hpc submit {_NO_VERB} 'submit' out",)),
    Mistake("other verb of dlio-submit", "dlio-submit report done", ("did you mean 'dlio-hpc report'?",)),
    *(Mistake(f"variable of another tool: {name}", f"DLIO_HPC_{name}=1 {DEMO}", (f"did you mean 'DLIO_HPC_{meant}'?",),
              code=0)
      for name, meant in {"PARTITION": "QUEUE", "WALLTIME": "TIME", "PROJECT": "ACCOUNT", "NTASKS": "PPN"}.items()),
)  # fmt: skip

_MINE = "name: s\nworkload: demo\nparts: {a: {sweep: {reader.read_threads: [1, 2]}}}\n"
_READS = "but the workload reads npz; "
_OF_FILES = {
    "photo": (b"\xff\xd8\xff\xe0", "a JPEG image", "set -S dataset.format=jpeg"),
    "picture": (b"\x89PNG\r\n\x1a\n", "a PNG image", "set -S dataset.format=png"),
    "hdf5": (b"\x89HDF\r\n\x1a\n", "an HDF5 file", "set -S dataset.format=hdf5"),
    "npy": (b"\x93NUMPY\x01\0", "an npy file", "set -S dataset.format=npy"),
    "parquet": (b"PAR1\x15\x04", "a Parquet file", "set -S dataset.format=parquet"),
    "tar": (bytes(257) + b"ustar\0", "a tar file", "set -S dataset.format=tar"),
    "gzip": (b"\x1f\x8b\x08", "compressed with gzip", "unpack it (gunzip)"),
}
FIRST_LOOKS = (
    Mistake("archive beside the jobs with another name", "dlio-hpc report dne.tar.zst -o runs",
            ("no archive 'dne.tar.zst' in runs; did you mean 'done.tar.zst'?", "dlio-hpc collect -o runs dne"),
            {"runs/archive/done.tar.zst": _CUT}),
    Mistake("archive in the folder of archives", "dlio-hpc report done.tar.zst -o runs", ("runs/archive/done.tar.zst",),
            {"runs/archive/done.tar.zst": _CUT}, code=3),
    *(Mistake(f"folder of jobs in commands: {line}", f"dlio-hpc {line} nosuch -o dlio-runs/archive/..",
              ("(dlio-hpc status -o dlio-runs/archive/.. lists jobs)",))
      for line in ("report", "collect", "cancel", "compare")),
    Mistake("name of a job for -J", DEMO + "-J nightly1",
            ("-J nightly1: -J is --job-option here", "dlio-hpc names jobs itself", "--runs nightly1")),
    Mistake("section given twice", DRY,
            ("w.yaml, line 4: key 'reader' is given twice (also on line 3); merge the two sections",),
            _w(W + "reader: {batch_size: 1}\nreader: {read_threads: 2}\n")),
    Mistake("one walltime for a queue", OWN,
            ("queues.debug.walltime: found text '1:00:00'", "for any number of nodes: {1: 1:00:00}"),
            _site("queues: {debug: {walltime: 1:00:00}}\n")),
    Mistake("unknown key with many known ones", DEMO + "-S reader.qwer=1",
            ("known keys: loader, mode", "and 22 more; dlio-hpc schema workload --text lists all keys")),
    Mistake("key misspelt, and where keys are listed", OWN,
            ("'walltme'; did you mean 'walltime'? dlio-hpc schema site --text lists all keys",),
            _site("walltme: 1:00:00\n")),
    Mistake("key of a criterion misspelt", "dlio-hpc accept done --criteria c.yaml",
            ("did you mean 'min_au'? dlio-hpc schema criteria --text lists all keys",), _criteria("min_auu: 90%")),
    Mistake("suite and the name of its criteria", "dlio-submit --suite in/su.yaml -s local --dry-run",
            ("in/su.yaml, line 4: verdict.criteria: there is no file /", "in/mine.yml; did you mean 'mine.yaml'?"),
            {"in/su.yaml": f"{_MINE}verdict: {{criteria: mine.yml}}\n", "in/mine.yaml": "name: c\n"}),
    Mistake("metric by its title", "dlio-submit --suite su.yaml -s local --dry-run",
            ("verdict.metrics[0]: found 'samples/s'; did you mean 'samples_per_s'?",),
            {"su.yaml": f"{_MINE}verdict: {{metrics: [samples/s]}}\n"}),
    Mistake("workload in place of its job", "dlio-hpc report demo",
            ("'demo' is a workload; its newest job in dlio-runs is demo-2",)),
    Mistake("workload without a job", "dlio-hpc report cosmoflow",
            ("'cosmoflow' is a workload, which has no job there",)),
    Mistake("workload in place of a dataset", "dlio-hpc datasets remove demo -d data",
            ("'demo' is a workload, and the datasets in", "are npz-1;"), {"data/npz-1/dlio-dataset.json": "{}"}),
    *(Mistake(f"file of another format: {name}", DEMO + "-d data --existing '*'",
              (f"a.bin is {kind}, {_READS}{advice}, or choose another pattern",),
              {"data/a.bin": begin + bytes(600)})
      for name, (begin, kind, advice) in _OF_FILES.items()),
    *(Mistake(f"npz files for {name}", DEMO + f"-d data --existing '*' -S dataset.format={name}",
              (f"a zip file, as npz files are, but the workload reads {name}; set -S dataset.format=npz",),
              {"data/a.bin": b"PK\x03\x04" + bytes(600)})
      for name in ("hdf5", "npy", "tfrecord", "jpeg", "parquet", "tar")),
    Mistake("compression of another format", DEMO + "-S dataset.format=tfrecord -S dataset.compression=lzf",
            ("compression=lzf: tfrecord files take gzip or zlib; lzf is for hdf5 only",)),
    Mistake("option of record after the command", "dlio-hpc record nosuch -o rec",
            ("note: -o rec comes after the command and was passed to it; put options of record before the command",
             "cannot run nosuch")),
    Mistake("job to characterize", "dlio-hpc characterize dlio-runs/done",
            ("dlio-runs/done is a job of dlio-hpc", "needs Darshan logs (*.darshan) or", "a recording")),
    Mistake("hours and minutes as a time limit", DEMO + "-t 1:30", ("write 90m or 1:30:00",)),
    Mistake("batch that is larger than the dataset",
            DEMO + "-S dataset.files=1 -S dataset.samples_per_file=4 -S reader.batch_size=99",
            ("note: reader.batch_size=99: the dataset has only 4 samples, so no batch is full",), code=0),
    *(Mistake(f"queue, account or time by two options: {key}", MACHINE + f"-A a -S site.{key}=x {option}",
              (f"note: -S site.{key}=x has no effect, because {option.split()[0]} is given, too",), code=0)
      for key, option in {"queue": "--queue regular", "account": "--account b"}.items()),
    Mistake("dataset folder that does not exist, and no generation",
            "dlio-submit demo -s local -d nosuch --generate never",
            ("no dataset npz-", "/nosuch (the folder does not exist)")),
)  # fmt: skip

_INDEXED = DEMO + "-S dataset.format=indexed -S 'dataset.sample={shape: [65], dtype: int32}' "
_BINS = "-S dataset.format=indexed -d data --existing '*.bin' "
_TOKENS = {
    "data/a.bin": bytes(4 * 8200),
    "data/a.idx": b"".join(token_index.encoded(np.full(10, 820, np.int64), "int32")),
}
NEW_FORMATS = (
    *(Mistake(f"key of generated files with existing ones: {key}", DEMO + f"-d data --existing '*' -S dataset.{key}",
              (f"-S dataset.{key} has no effect with --existing", "leave it out"), {"data/a.bin": b"x"})
      for key in ("row_group=10", "columns=[a]", "chunk.shape=[4,16,16]", "zarr.version=2",
                  "compression=zstd", "random_bits=4", "documents.tokens=100")),
    Mistake("runs across documents of existing files", DEMO + _BINS + "-S dataset.documents.tokens=9",
            ("set dataset.existing.sample_bytes",), _TOKENS),
    Mistake("tokens in place of bytes", DEMO + _BINS + "-S dataset.existing.sample_bytes=4097",
            ("4097 tokens are 16388 bytes",), _TOKENS),
    Mistake("bytes of a sample that are tokens", DEMO + _BINS + "-S dataset.existing.sample_bytes=4096",
            ("a sample has 1,024 tokens of int32, for sequences of 1,023 tokens",), _TOKENS, code=0),
    Mistake("samples in place of bytes of a chunk", DEMO + "-S dataset.format=zarr -S dataset.chunk=64",
            ("note: dataset.chunk: a chunk has 64 B, so a sample takes", "give the shape of a chunk"), code=0),
    Mistake("glob of a file with a slash at its end", DRY,
            ("glob 'x.zarr/' must be a path relative to the data directory", "without a slash at its beginning or end"),
            _w("name: w\ndataset: {format: raw, files: 1, samples_per_file: 1, sample: {bytes: 1}, "
               "existing: {glob: x.zarr/}}\n")),
    Mistake("groups of a blend", _INDEXED + "-S dataset.files=3 -S 'dataset.blend=[0.7,0.3]'",
            ("note: dataset.blend: 3 files cannot be divided evenly; the weights stand for 1, 2 files",), code=0),
    Mistake("weights of a blend without a sum", _INDEXED + "-S dataset.files=2 -S 'dataset.blend=[1e308,1e308]'",
            ("blend: the weights are too large",)),
    Mistake("map and O_DIRECT", DEMO + "-S dataset.format=npy -S reader.mapped=true -S reader.direct=true",
            ("reader.mapped and reader.direct exclude each other",)),
    Mistake("small differences of sizes in archives",
            DEMO + "-S dataset.format=tar -S 'dataset.sample={bytes: 150 KiB, stdev: 100}'",
            ("note: dataset.sample.stdev=100: sizes in format=tar change in steps of 512 bytes",), code=0),
    Mistake("difference in place of a similarity", "dlio-hpc characterize two.h5 --check --tolerance 5%",
            ("found 5%, a similarity of 5%", "to allow a difference of 5%, write 95%")),
    Mistake("export of a history", "dlio-hpc export", ("did you mean 'history'?",)),
)  # fmt: skip
_NO_CREATES = "=create_per_s: demo never has create/s (create_per_s); metadata workloads with create"
# What a stranger tried who had read only the documentation.
SECOND_LOOKS = (
    Mistake("metric of other workloads in a suite", "dlio-submit --suite su.yaml -s local --dry-run",
            (f"verdict.metrics{_NO_CREATES}",), {"su.yaml": f"{_MINE}verdict: {{metrics: [create_per_s]}}\n"}),
    Mistake("metric of other workloads in a study", "dlio-submit --study s.yaml -s local --dry-run",
            (f"metric{_NO_CREATES}",), {"s.yaml": f"{STUDY}    metric: create_per_s\n"}),
    Mistake("pixels in place of bytes", DEMO + "-S reader.resize=224",
            ("reader.resize is 224 B, the size of a sample", "give the bytes: 224 x 224 x 3 = 150528"), code=0),
    Mistake("size of a model without a unit", DEMO + "-S checkpoint.model_bytes=500",
            ("checkpoint.model_bytes is 500 B: the model is very small", "write 500KiB or 500MiB"), code=0),
    Mistake("defaults with another suffix", "DLIO_HPC_SITE_PATH=own dlio-hpc sites",
            ("own/defaults.yml: files are searched for with the suffix .yaml; rename it to defaults.yaml",),
            {"own/defaults.yml": "site: local\n"}),
    Mistake("workload with another suffix", "DLIO_HPC_SITE_PATH=own dlio-submit photos -s local --dry-run",
            ("own/workloads/photos.yml: files are searched for with the suffix .yaml; rename it to photos.yaml",),
            {"own/workloads/photos.yml": W}),
    Mistake("file in place of the name of a profile", "dlio-hpc sites new mine.yaml",
            ("mine.yaml is the name of a file; give the name of the profile: sites new mine",)),
    *(Mistake(f"page of another kind: {suffix}", f"dlio-hpc report done --html out.{suffix}",
              (f"the page is HTML, and out.{suffix} is the name of another kind; give out.html",))
      for suffix in ("pdf", "PNG", "json")),
    Mistake("workload in place of a pattern of jobs", "dlio-hpc history demo",
            ("no job of dlio-runs/archive matches 'demo'; did you mean 'demo-*'? it has 1 job",)),
    Mistake("capital letters of a file system", OWN,
            ("file_system: write the kind as the kernel does: lustre",), _site("file_system: Lustre\n")),
    Mistake("layout that ends before the file", OWN,
            ("the last component ends at 64 MiB, and files cannot be written beyond it; leave its end null",),
            _site("layout: {components: [{end: 1 MiB, stripe_count: 1}, {end: 64 MiB, stripe_count: 8}]}\n")),
)  # fmt: skip


TABLES = {
    "first looks": FIRST_LOOKS, "second looks": SECOND_LOOKS, "new formats": NEW_FORMATS,
    "sections": SECTIONS, "words": WORDS,
    "nearby": NEARBY,
    "blanks": BLANKS,
    "lost values": LOST, "names": NAMES,
    "-S": OVERRIDES, "-P": SWEEPS, "options": OPTIONS, "yaml": YAML, "existing": EXISTING,
    "results": RESULTS, "kinds": KINDS, "without effect": WITHOUT_EFFECT, "lines": LINES,
    "folders": FOLDERS, "targets": TARGETS, "copies": COPIES, "variables": VARIABLES, "verbs": OF_OTHER_VERBS,
    "system": SYSTEM, "habits": HABITS, "logs": LOGS, "nothing": NOTHING, "studies": IN_STUDIES,
    "in files": IN_FILES, "pairs": PAIRS,
}  # fmt: skip
# Words of Python and of its libraries, outside of quotation marks.
_JARGON = re.compile(r"`|\b(None|NoneType|dict|str|int|bool|object|msgspec|Errno|[A-Z]\w+Error|codec|True|False)\b")
_MOST_LINES = 4


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a job that has ended and is archived, named done, and an HDF5 file with two arrays."""
    folder = tmp_path_factory.mktemp("mistakes")
    made = planning.make(
        workload.load("demo", ("dataset.files=8", "train.epochs=1")), site.load("local"),
        planning.Request(runs=folder / "dlio-runs", data=folder / "data", ranks_per_node=2, generate="never"),
    )  # fmt: skip
    job = folder / "dlio-runs" / "done"
    job.mkdir(parents=True)
    recordings.leave(job, made, recordings.merged(made))
    assert runner(folder)("dlio-hpc", "collect", "done").code == 0
    with h5py.File(folder / "two.h5", "w") as file:
        file["images"], file["labels"] = np.zeros((4, 8)), np.zeros(4)
    return folder


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(row, id=f"{table}: {row.name}") for table, rows in TABLES.items() for row in rows],
)
def test_the_message_says_what_would_do(mistake: Mistake, place: Path, tmp_path: Path) -> None:
    for shared in place.iterdir():
        (tmp_path / shared.name).symlink_to(shared)
    for name, content in mistake.files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    line = shlex.split(mistake.command)
    variables = list(takewhile(lambda word: not word.startswith("dlio-"), line))
    environment = dict(text.split("=", 1) for text in variables)
    done = runner(tmp_path)(*line[len(variables) :], **environment)  # a traceback fails the test
    text = f"{done.err}\n{done.out}"
    assert done.code == mistake.code, text
    for part in mistake.says:
        assert part in text
    assert len([line for line in done.err.splitlines() if line]) <= _MOST_LINES
    assert not _JARGON.search(re.sub(r"'[^']*'", "''", done.err)), done.err


def test_the_message_of_a_usage_error_is_the_first_line(tmp_path: Path) -> None:
    first, *rest = runner(tmp_path)("dlio-submit", "demo", "--dryrun").err.splitlines()
    assert first.startswith("dlio-submit: No such option '--dryrun'"), first
    assert [line.split()[0] for line in rest] == ["Usage:", "Try"]


@pytest.mark.parametrize("setting", ["dataset.sample={bytes: 12000}", "checkpoint=null", "checkpoint={}"])
def test_a_small_mapping_replaces_a_section_without_a_note(setting: str, tmp_path: Path) -> None:
    done = runner(tmp_path)("dlio-submit", "demo", "-s", "local", "--dry-run", "-S", setting)
    assert (done.code, "replaces the whole section" in done.err) == (0, False), done.err


def test_the_note_on_a_replaced_section_is_in_the_plan(tmp_path: Path) -> None:
    made = workload.draft("demo", ("reader={batch_size: 8}",))
    assert [note.partition(":")[0] for note in made.notes] == ["-S reader"]
    line = ("dlio-submit", "demo", "-s", "local", "--dry-run", "--json", "-S", "reader={batch_size: 8}")
    (job,) = json.loads(runner(tmp_path)(*line).out)["jobs"]
    assert made.notes[0] in job["notes"]


def test_nothing_is_extracted_before_all_archives_are_known(place: Path, tmp_path: Path) -> None:
    (archive,) = (place / "dlio-runs" / "archive").glob("*.tar.zst")
    for other in ("unpacked", "x.tar.zst"):
        assert runner(tmp_path)("dlio-hpc", "archive", "extract", str(archive), other).code == 2
        assert not list(tmp_path.iterdir())


def test_a_dry_run_refuses_to_follow_a_job_that_failed(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "dlio-runs" / "done", tmp_path / "broken")
    record = tmp_path / "broken" / rundir.JOB
    job = json.loads(record.read_text())
    job["states"][-1]["state"] = "failed"
    record.write_text(json.dumps(job))
    done = runner(tmp_path)(*shlex.split(DEMO), "--after", "./broken")
    assert done.code == 2
    assert "this job ended as failed; no job can depend on it" in done.err


@pytest.mark.parametrize("name", ["plan.json", "job.json", "runs/*/result.json"])
@pytest.mark.parametrize("verb", ["report", "collect", "compare"])
def test_a_damaged_file_of_an_archived_job_points_to_the_archive(
    place: Path, tmp_path: Path, name: str, verb: str
) -> None:
    shutil.copytree(place / "dlio-runs", tmp_path / "dlio-runs")
    (kept,) = (tmp_path / "dlio-runs" / "archive").glob("*.tar.zst")
    job = (tmp_path / "dlio-runs" / "done").rename(tmp_path / "dlio-runs" / kept.name.removesuffix(".tar.zst"))
    for file in job.glob(name):
        file.write_text("{")
    done = runner(tmp_path)("dlio-hpc", verb, job.name)
    if (verb, name) == ("collect", "runs/*/result.json"):
        assert "has changed since it was archived" in done.err
        return
    assert done.code == 3
    assert "; the archive has the job as it was collected: dlio-hpc report " in done.err
    archive = shlex.split(done.err.strip())[-1]
    assert runner(tmp_path)("dlio-hpc", "report", archive).code == 0


def test_another_copy_of_a_corrupted_archive_is_named(tmp_path: Path) -> None:
    (tmp_path / "dlio-runs" / "archive").mkdir(parents=True)
    for name in ("done.tar.zst", "dlio-runs/archive/done.tar.zst"):
        (tmp_path / name).write_bytes(_CUT)
    done = runner(tmp_path)("dlio-hpc", "archive", "verify", "done.tar.zst")
    assert done.code == 3
    assert "Another copy of this archive: dlio-runs/archive/done.tar.zst" in done.err
    named = runner(tmp_path)("dlio-hpc", "archive", "list", "done")
    assert (named.code, "did you mean 'dlio-runs/archive/done.tar.zst'?" in named.err) == (2, True)


@pytest.mark.parametrize(("folder", "where"), [("dlio-runs", "this folder has jobs: --runs ."),
                                               ("dlio-runs/done", "the folder above has jobs: --runs ..")])  # fmt: skip
def test_jobs_near_the_current_folder_are_named(folder: str, where: str, place: Path) -> None:
    done = runner(place / folder)("dlio-hpc", "status")
    assert (done.code, where in done.err) == (2, True), done.err


def test_the_id_of_the_batch_system_names_the_job(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "dlio-runs" / "done", tmp_path / "dlio-runs" / "done")
    record = tmp_path / "dlio-runs" / "done" / rundir.JOB
    record.write_text(json.dumps({**json.loads(record.read_text()), "batch_id": "123456"}))
    done = runner(tmp_path)("dlio-hpc", "wait", "123456")
    assert done.code == 2
    assert "did you mean 'done', which has this id in the batch system?" in done.err


def test_a_job_of_a_study_names_the_study_to_resume(tmp_path: Path) -> None:
    made = studies.make(tmp_path / "dlio-runs", studies.asked("demo", "reader.batch_size=4,8"))
    folder = studies.write(made, lambda point, repeat: 1.0)
    (job, *_) = sorted(path.parent.name for path in folder.parent.glob(f"{folder.name}-*/{rundir.JOB}"))
    done = runner(tmp_path)("dlio-submit", "--resume", job)
    assert done.code == 2
    assert f"{job} is a job of the study {folder.name}; give the study: --resume {folder.name}" in done.err


def test_an_archive_in_the_current_folder_comes_before_the_one_beside_the_jobs(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "dlio-runs" / "archive", tmp_path / "dlio-runs" / "archive")
    (kept,) = (tmp_path / "dlio-runs" / "archive").glob("*.tar.zst")
    (tmp_path / kept.name).write_bytes(_CUT)
    assert runner(tmp_path)("dlio-hpc", "report", kept.name).code == 3
    (tmp_path / kept.name).unlink()
    assert runner(tmp_path)("dlio-hpc", "report", kept.name).code == 0


def test_one_queue_given_twice_needs_no_note(tmp_path: Path) -> None:
    line = shlex.split(MACHINE.replace("-d .", "-d data") + "-A a -S site.queue=debug --queue debug")
    assert "has no effect" not in runner(tmp_path)(*line).err


def test_verbs_of_commands_in_messages_take_the_folder_of_jobs() -> None:
    text = "dlio-hpc status lists jobs; dlio-hpc wait /a/job; dlio-hpc report -o x done"
    assert own_commands.with_runs(text, "../my runs").startswith(
        "dlio-hpc status -o '../my runs' lists jobs; dlio-hpc wait /a"
    )
    assert own_commands.with_runs(text, "dlio-runs") == own_commands.with_runs(text, None) == text
    for verb in own_commands.VERBS:
        command = verbs.cli.get_command(click.Context(verbs.cli), verb)
        assert command is not None
        assert any({"-o", "--runs"} <= set(param.opts) for param in command.params), verb


def test_the_same_log_twice_is_no_comparison(place: Path, tmp_path: Path) -> None:
    done = runner(place)("dlio-hpc", "similarity", "done", "dlio-runs/done")
    assert "Both are the same log or job" in done.out.splitlines()[0]


def test_the_table_is_large_and_names_are_unique() -> None:
    rows = [f"{table}: {row.name}" for table, rows in TABLES.items() for row in rows]
    assert len(rows) == len(set(rows)) >= 150


@pytest.mark.parametrize("line", ["dlio-submit ./p -s local --dry-run", f"{DEMO} -s ./p", "dlio-hpc import ./p",
                                  "dlio-submit /dev/zero -s local --dry-run", "dlio-hpc accept done --criteria ./p",
                                  "dlio-submit --suite ./p.yaml -s local --dry-run"])  # fmt: skip
def test_a_pipe_with_a_name_and_a_device_are_no_yaml_files(line: str, place: Path, tmp_path: Path) -> None:
    (tmp_path / "dlio-runs").symlink_to(place / "dlio-runs")
    os.mkfifo(tmp_path / "p")
    os.mkfifo(tmp_path / "p.yaml")
    done = runner(tmp_path)(*shlex.split(line))
    assert done.code == 2
    assert "is not a regular file; give a file, or /dev/stdin to read from a pipe" in done.err


def test_a_yaml_file_that_does_not_end_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "w.yaml").open("wb") as file:
        file.truncate(1 << 40)
    done = runner(tmp_path)(*shlex.split(DRY))
    assert (done.code, "w.yaml has more than 64 MiB" in done.err) == (2, True), done.err


def test_a_workload_is_read_from_a_pipe_of_the_shell(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(W)
    program = f"{sys.executable} -m dlio_hpc submit"
    for line in (
        f"{program} /dev/stdin -s local --dry-run < <(cat w.yaml)",
        f"{program} <(cat w.yaml) -s local --dry-run",
    ):
        done = subprocess.run(["bash", "-c", line], check=False, cwd=tmp_path, capture_output=True, text=True)
        assert "#!/bin/bash" in done.stdout, done.stderr


def test_status_names_folders_that_it_does_not_list(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    for name in ("good", "lost", "private"):
        shutil.copytree(place / "dlio-runs" / "done", runs / name)
    (runs / "lost" / rundir.JOB).unlink()
    (runs / "private" / rundir.JOB).unlink()  # as for a user without permission; root may read all folders
    may_access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "private" and may_access(path, mode))
    done = runner(tmp_path)("dlio-hpc", "status", "-o", "runs")
    assert done.code == 0
    assert len(re.findall("completed", done.out)) == 1
    assert "note: 1 folder cannot be read (Permission denied): private\n" in done.err
    assert "note: 1 folder of jobs without job.json: lost; if runs/archive has the archive" in done.err


@pytest.mark.parametrize(("name", "text"), [
    ("click", "raise ImportError('built for Python 2')"), ("msgspec", "print 'x'"),
    ("yaml", "raise AttributeError('a')"), ("random", "raise SystemExit(3)"),
    ("jinja2", "import no_such_module"), ("msgspec", "version = 1"), ("click", "Path = 1"),
])  # fmt: skip
def test_a_package_of_another_python_is_named(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / f"{name}.py").write_text(f"{text}\n")
    python_path = f"{tmp_path / 'other'}:{Path(__file__).parents[2]}"
    done = runner(tmp_path)(*shlex.split(DEMO), PYTHONPATH=python_path)
    assert done.code == 6
    assert f"dlio-submit: cannot import {tmp_path}/other/{name}.py (" in done.err
    assert f"PYTHONPATH has the folder {tmp_path}/other; unset it" in done.err


def test_a_dead_link_is_no_folder_for_data(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/nope/x")
    for options in ("-d link", "-d link/data", "-d . -o link", "-d . --archive link"):
        done = runner(tmp_path)(*shlex.split(DEMO), *options.split())
        assert done.code == 2
        assert "link is a link to /nope/x, which does not exist; create that folder, or correct the link" in done.err
    done = runner(tmp_path)(*shlex.split("dlio-submit demo -s slurm --dry-run -d link"))
    assert (done.code, "link is a link to /nope/x, which does not exist here" in done.err) == (0, True)
