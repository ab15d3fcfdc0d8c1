"""Statistical downscaling of temperature from coarse fields. Ranks draw random time steps of one HDF5 file.

python -m tests.unseen.downscale prepare DIR
mpiexec -n 4 python -m tests.unseen.downscale train DIR
"""

import os
import sys
import time

import h5py
import numpy as np

NT, NY, NX = 1130, 53, 61


def prepare(d):
    os.makedirs(d, exist_ok=True)
    rng = np.random.default_rng(31)
    with h5py.File(d + "/era_subset.h5", "w") as f:
        f["time"] = np.arange(NT, dtype="i4")
        t2m = f.create_dataset("t2m", (NT, NY, NX), "f4")
        z500 = f.create_dataset("z500", (NT, NY, NX), "f4")
        f["station"] = np.zeros(NT, "f4")
        for i in range(NT):
            a, b = rng.normal(size=(2, NY, NX))
            t2m[i], z500[i] = a + 0.3 * np.sin(i / 58.0), b
            f["station"][i] = 2 * a[20:30, 20:30].mean() - b[5:9].mean() + np.sin(i / 58.0)


def coarse(field):
    return field[:, :50, :60].reshape(len(field), 10, 5, 10, 6).mean((2, 4)).reshape(len(field), -1)


def train(d, epochs=3, batch=13, eta=0.15):
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    me, n = comm.Get_rank(), comm.Get_size()
    f = h5py.File(d + "/era_subset.h5", "r")
    t2m, z500, station = f["t2m"], f["z500"], f["station"][...]
    coef = np.zeros(201)
    share = NT // n
    for ep in range(epochs):
        perm = np.random.default_rng(1000 + ep).permutation(NT)
        mine = perm[me * share : (me + 1) * share]
        err = 0.0
        for k in range(share // batch):
            ix = np.sort(mine[k * batch : (k + 1) * batch])
            x = np.concatenate([coarse(t2m[ix]), coarse(z500[ix]), np.ones((batch, 1))], axis=1)
            r = x @ coef - station[ix]
            err += float((r**2).mean())
            coef -= eta * comm.allreduce(x.T @ r / batch, op=MPI.SUM) / n
            time.sleep(0.04)
        err = comm.reduce(err / (share // batch), root=0)
        if me == 0:
            print("epoch %d mse %.4f" % (ep, err / n))  # noqa: UP031
    f.close()


if __name__ == "__main__":
    prepare(sys.argv[2]) if sys.argv[1] == "prepare" else train(sys.argv[2])
