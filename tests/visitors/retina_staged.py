"""Grades of retina scans. The scans lie in an archive on a slow file system; a job copies them to scratch before it
trains, and removes the copies at the end.

    python -m tests.visitors.retina_staged prepare DIR     makes DIR/archive
    python -m tests.visitors.retina_staged train DIR       copies to DIR/scratch, trains, saves to DIR/results
"""

import random
import shutil
import sys
import time
from glob import glob
from os import makedirs
from os.path import basename, join

import numpy as np
import torch

n_files, n_scans, channels, side, n_grades = 20, 32, 3, 48, 4
batch_size, n_epochs, learning_rate = 16, 4, 0.01
compute_seconds = 0.035  # a batch of the real network
tape_seconds = 0.03  # what the archive takes before it delivers a file


def prepare(base):
    archive = join(base, "archive")
    makedirs(archive, exist_ok=True)
    rng = np.random.default_rng(404)
    for k in range(n_files):
        grade = rng.integers(n_grades, size=n_scans)
        scan = rng.normal(size=(n_scans, channels, side, side)) + 0.2 * grade[:, None, None, None]
        np.savez(join(archive, "patients_%03d.npz" % k), scan=scan.astype("f4"), grade=grade.astype("i8"))


def stage_in(base):
    scratch = join(base, "scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    makedirs(scratch)
    t = time.perf_counter()
    copies = []
    for source in sorted(glob(join(base, "archive", "*.npz"))):
        time.sleep(tape_seconds)
        copies.append(shutil.copy2(source, join(scratch, basename(source))))
    print("staged %d files in %.1f s" % (len(copies), time.perf_counter() - t))
    return copies


def train(base):
    copies = stage_in(base)
    results = join(base, "results")
    makedirs(results, exist_ok=True)
    rng = random.Random(17)
    torch.manual_seed(17)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(channels * side * side, 32), torch.nn.Tanh(), torch.nn.Linear(32, n_grades)
    )
    opt = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.8, nesterov=True)
    for epoch in range(n_epochs):
        total, count = 0.0, 0
        rng.shuffle(copies)
        for path in copies:
            with np.load(path) as npz:
                scan, grade = npz["scan"], npz["grade"]
            order = list(range(len(scan)))
            rng.shuffle(order)
            for i in range(0, len(order), batch_size):
                pick = order[i : i + batch_size]
                x, y = torch.from_numpy(scan[pick]), torch.from_numpy(grade[pick])
                opt.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x), y)
                loss.backward()
                opt.step()
                time.sleep(compute_seconds)
                total += loss.item()
                count += 1
        torch.save((model.state_dict(), opt.state_dict()), join(results, "epoch_%d.pt" % epoch))
        print("epoch %d, mean loss %.3f" % (epoch, total / count))
    shutil.rmtree(join(base, "scratch"))


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(sys.argv[2])
    elif sys.argv[1] == "train":
        train(sys.argv[2])
