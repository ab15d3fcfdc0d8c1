"""Pretraining of a small language model on tokenized bookkeeping records, after Megatron-LM.

The corpus is `ledger.bin` (int32 tokens, document after document) with `ledger.idx` (magic, version, number of
documents, then length and byte offset of each). Samples are stretches of SEQ + 1 tokens of the shuffled documents; the
three index arrays are built once and cached as .npy next to the corpus.

    python -m tests.visitors.ledger_pretrain prepare DIR
    python -m tests.visitors.ledger_pretrain train DIR [--load]
"""

import argparse
import os
import struct
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MAGIC = b"LEDGRIDX"
DTYPE = np.int32


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("command", choices=("prepare", "train"))
    p.add_argument("data_path")
    p.add_argument("--load", action="store_true", help="continue from the newest checkpoint")
    p.add_argument("--seed", type=int, default=1234)
    p.add_argument("--vocab-size", type=int, default=256)
    p.add_argument("--seq-length", type=int, default=1024)
    p.add_argument("--micro-batch-size", type=int, default=4)
    p.add_argument("--global-batch-size", type=int, default=16)
    p.add_argument("--train-iters", type=int, default=60)
    p.add_argument("--save-interval", type=int, default=20)
    p.add_argument("--num-workers", type=int, default=2)
    p.add_argument("--log-interval", type=int, default=20)
    p.add_argument(
        "--micro-step-seconds",
        type=float,
        default=0.015,
        help="sleep in each micro batch for a real model's forward and backward",
    )
    return p.parse_args()


# ---------------------------------------------------------------------------------------------------------- corpus
def write_corpus(args):
    os.makedirs(args.data_path, exist_ok=True)
    rng = np.random.default_rng(args.seed)
    lengths = rng.integers(300, 4000, 750).astype(np.int32)
    with open(os.path.join(args.data_path, "ledger.bin"), "wb") as f:
        f.writelines(np.minimum(rng.geometric(0.02, n), args.vocab_size - 1).astype(DTYPE).tobytes() for n in lengths)
    pointers = np.concatenate([[0], np.cumsum(lengths[:-1], dtype=np.int64)]) * DTYPE().itemsize
    with open(os.path.join(args.data_path, "ledger.idx"), "wb") as f:
        f.write(MAGIC + struct.pack("<QQ", 1, len(lengths)))
        f.write(lengths.tobytes())
        f.write(pointers.astype(np.int64).tobytes())


class IndexedDataset:
    def __init__(self, prefix):
        with open(prefix + ".idx", "rb") as f:
            assert f.read(8) == MAGIC
            version, count = struct.unpack("<QQ", f.read(16))
            assert version == 1
            start = f.tell()
        index = np.memmap(prefix + ".idx", mode="r", order="C")
        self.lengths = np.frombuffer(index, np.int32, count, start)
        self.pointers = np.frombuffer(index, np.int64, count, start + self.lengths.nbytes)
        self.buffer = np.memmap(prefix + ".bin", mode="r", order="C")

    def get(self, doc, offset, length):
        at = int(self.pointers[doc]) + offset * DTYPE().itemsize
        return np.frombuffer(self.buffer, DTYPE, length, at)


class GPTDataset(Dataset):
    def __init__(self, prefix, seq_length, seed):
        self.docs, self.seq = IndexedDataset(prefix), seq_length
        names = [f"{prefix}_{seq_length}s_{seed}_{part}.npy" for part in ("doc", "sample", "shuffle")]
        if not all(map(os.path.exists, names)):
            rng = np.random.RandomState(seed)
            doc_idx = rng.permutation(len(self.docs.lengths)).astype(np.int32)
            ends = np.cumsum(self.docs.lengths[doc_idx], dtype=np.int64)
            starts = np.arange(0, ends[-1] - seq_length - 1, seq_length, dtype=np.int64)
            which = np.searchsorted(ends, starts, side="right")
            begin = starts - np.concatenate([[0], ends[:-1]])[which]
            sample_idx = np.stack([which, begin], 1).astype(np.int32)
            shuffle_idx = rng.permutation(len(starts)).astype(np.int32)
            for name, array in zip(names, (doc_idx, sample_idx, shuffle_idx), strict=False):
                np.save(name, array)
        self.doc_idx, self.sample_idx, self.shuffle_idx = (np.load(n, mmap_mode="r") for n in names)

    def __len__(self):
        return len(self.shuffle_idx)

    def __getitem__(self, idx):
        doc, offset = (int(v) for v in self.sample_idx[self.shuffle_idx[idx]])
        parts, need = [], self.seq + 1
        while need:
            number = int(self.doc_idx[doc])
            take = min(need, int(self.docs.lengths[number]) - offset)
            parts.append(self.docs.get(number, offset, take))
            need, doc, offset = need - take, doc + 1, 0
        return torch.from_numpy(np.concatenate(parts).astype(np.int64))


class PretrainingSampler:
    """Batches in the order of the dataset (which is shuffled itself), from the first sample not yet consumed."""

    def __init__(self, total, consumed, micro_batch):
        self.total, self.consumed, self.micro_batch = total, consumed, micro_batch

    def __len__(self):
        return (self.total - self.consumed) // self.micro_batch

    def __iter__(self):
        for start in range(self.consumed, self.total - self.micro_batch + 1, self.micro_batch):
            yield list(range(start, start + self.micro_batch))


# ----------------------------------------------------------------------------------------------------------- model
class Model(nn.Module):
    def __init__(self, vocab, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.mix = nn.Conv1d(width, width, 5, padding=4)
        self.out = nn.Linear(width, vocab)

    def forward(self, tokens):
        h = self.embed(tokens).transpose(1, 2)
        h = torch.relu(self.mix(h)[..., : tokens.shape[1]]).transpose(1, 2)
        return self.out(h)


def checkpoint_dir(args, iteration):
    return os.path.join(args.data_path, "checkpoints", f"iter_{iteration:07d}", "mp_rank_00")


def save_checkpoint(args, iteration, consumed, model, optimizer):
    where = checkpoint_dir(args, iteration)
    os.makedirs(where, exist_ok=True)
    state = {
        "iteration": iteration,
        "consumed_samples": consumed,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "rng": torch.get_rng_state(),
    }
    torch.save(state, os.path.join(where, "model_optim_rng.pt"))
    with open(os.path.join(args.data_path, "checkpoints", "latest_checkpointed_iteration.txt"), "w") as f:
        f.write(str(iteration))


def load_checkpoint(args, model, optimizer):
    with open(os.path.join(args.data_path, "checkpoints", "latest_checkpointed_iteration.txt")) as f:
        iteration = int(f.read())
    state = torch.load(os.path.join(checkpoint_dir(args, iteration), "model_optim_rng.pt"))
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    return iteration, state["consumed_samples"]


def pretrain(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    dataset = GPTDataset(os.path.join(args.data_path, "ledger"), args.seq_length, args.seed)
    model = Model(args.vocab_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    iteration = consumed = 0
    if args.load:
        iteration, consumed = load_checkpoint(args, model, optimizer)
    sampler = PretrainingSampler(len(dataset), consumed, args.micro_batch_size)
    loader = iter(DataLoader(dataset, batch_sampler=sampler, num_workers=args.num_workers))
    accumulate = args.global_batch_size // args.micro_batch_size
    print(f"> {len(dataset)} samples; {args.train_iters} iterations of {accumulate} micro batches")
    while iteration < args.train_iters:
        optimizer.zero_grad()
        running = 0.0
        for _ in range(accumulate):
            tokens = next(loader)
            logits = model(tokens[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / accumulate
            loss.backward()
            running += loss.item()
            time.sleep(args.micro_step_seconds)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        iteration += 1
        consumed += args.global_batch_size
        if iteration % args.log_interval == 0:
            epoch = consumed / len(dataset)
            print(
                f" iteration {iteration:4d}/{args.train_iters} | consumed samples: {consumed} "
                f"| epoch {epoch:.2f} | lm loss: {running:.4f}",
                flush=True,
            )
        if iteration % args.save_interval == 0:
            save_checkpoint(args, iteration, consumed, model, optimizer)


if __name__ == "__main__":
    arguments = get_args()
    if arguments.command == "prepare":
        write_corpus(arguments)
    else:
        pretrain(arguments)
