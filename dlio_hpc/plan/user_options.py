"""The options --users and --ttft of inference workloads, as settings of their keys."""

from pathlib import Path

from msgspec import structs

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import workload
from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.config.site import Site
from dlio_hpc.dataset import kv_requests, request_trace
from dlio_hpc.files import filesystem
from dlio_hpc.plan import plan
from dlio_hpc.plan.options import AUTO, Options

# Epochs of a search, and the largest number of users that it tries by itself.
_EPOCHS, _MOST_USERS = 10, 1 << 16
# Number of users from whose blocks the space for more users is computed, and share of the free space to be used.
_SAMPLED, _USED = 256, 0.5


def settings(options: Options, machine: Site, overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Return the settings of workload keys for which --users and --ttft stand, each in the form KEY=VALUE. overrides:
    settings of the user, which take precedence. Raise ConfigError if the workload is no inference workload.
    """
    if options.users is None and options.ttft is None:
        return ()
    draft = None if options.workload is None else workload.draft(options.workload, ())
    if draft is None or not draft.data.get("inference"):
        raise ConfigError(
            "--users, --ttft: they are for an inference workload, such as kv_cache_llama3_8b; in a study file, set "
            "inference.users and inference.target"
        )
    given = [] if options.ttft is None else [f"inference.target={float(options.ttft)!r}"]
    if options.users not in (None, AUTO):
        given.append(f"inference.users={options.users}")
    if options.users == AUTO:
        if not any(text.startswith("train.epochs") for text in overrides):
            given.append(f"train.epochs={_EPOCHS}")
        if not any(text.startswith("inference.search") for text in overrides):
            made = workload.draft(options.workload or "", (*overrides, *given)).with_settings({})
            assert made.inference is not None
            given.append(f"inference.search={{most: {_most(made.inference, options, machine)}}}")
    own = {text.partition("=")[0].strip() for text in overrides}
    twice = next((text for text in given if text.partition("=")[0] in own), None)
    if twice is not None:
        key = twice.partition("=")[0]
        raise ConfigError(f"-S {key}: --users or --ttft sets this key, too; leave one of them out")
    return tuple(given)


def _most(keys: InferenceKeys, options: Options, machine: Site) -> int:
    """Return the largest number of users that a search tries: as many as half of the free space of the folder for
    datasets holds.
    """
    if keys.trace is not None:
        keys = structs.replace(keys, trace=request_trace.described(keys.trace))
    nodes = max(options.nodes or (1,))
    ranks = nodes * max(options.ranks_per_node or (machine.ranks_per_node,))
    users = max(_SAMPLED, keys.users)
    needed = kv_requests.most_bytes(structs.replace(keys, users=users, search=None), ranks)
    folder = filesystem.existing(Path(plan.data_directory(machine, options.data)))
    space = filesystem.free(folder) * _USED
    if keys.capacity is not None and keys.capacity * ranks <= space:
        return max(keys.users, _MOST_USERS)
    return max(keys.users, min(_MOST_USERS, int(users * space / max(needed, 1))))
