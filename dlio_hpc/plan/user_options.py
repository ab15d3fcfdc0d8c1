"""The options --users and --ttft of inference workloads, as settings of their keys."""

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import workload
from dlio_hpc.config.inference_keys import MOST_REQUESTS, InferenceKeys
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import Draft
from dlio_hpc.dataset import kv_requests, kv_tiers, request_trace
from dlio_hpc.files import filesystem
from dlio_hpc.plan import plan
from dlio_hpc.plan.options import AUTO, Options

# Epochs of a search, and the largest number of users that it tries by itself.
_EPOCHS, _MOST_USERS = 10, 1 << 16
# Number of users from whose blocks the space for more users is computed, and share of the free space to be used.
_SAMPLED, _USED = 256, 0.5
_USERS, _TARGET, _SEARCH, _TRIES = "inference.users", "inference.target", "inference.search", "train.epochs"


def settings(options: Options, machine: Site, overrides: tuple[str, ...]) -> tuple[str, ...]:
    """Return the settings of workload keys for which --users and --ttft stand, each in the form KEY=VALUE. overrides:
    settings of the user. A search keeps those of its keys. Raise ConfigError if the workload is no inference workload,
    or if the user sets the same key in two ways.
    """
    if options.users is None and options.ttft is None:
        return ()
    base = None if options.workload is None else workload.draft(options.workload, ())
    if base is None or not base.data.get("inference"):
        raise ConfigError(
            "--users, --ttft: they are for an inference workload, such as kv_cache_llama3_8b; in a study file, set "
            "inference.users and inference.target"
        )
    draft = workload.draft(options.workload or "", overrides)
    given = {} if options.ttft is None else {_TARGET: repr(float(options.ttft))}
    if options.users not in (None, AUTO):
        given[_USERS] = str(options.users)
    for key in given:
        if _is_set(draft, key, (*overrides, *options.sweeps)):
            raise ConfigError(f"{key}: --users or --ttft sets this key, and -S or -P, too; leave one of them out")
    if options.users == AUTO:
        given |= _of_search(draft, options, machine, overrides)
    return tuple(f"{key}={value}" for key, value in given.items())


def _is_set(draft: Draft, key: str, texts: Sequence[str]) -> bool:
    """Return whether one of these settings sets a key, or the section that contains it with this key. draft: the
    workload with the settings.
    """
    section, _, name = key.rpartition(".")
    names = {text.partition("=")[0].strip() for text in texts}
    data = draft.data.get(section)
    is_in_section = section in names and isinstance(data, dict) and name in data
    return is_in_section or any(one == key or one.startswith(f"{key}.") for one in names)


def _of_search(draft: Draft, options: Options, machine: Site, overrides: tuple[str, ...]) -> dict[str, str]:
    """Return the settings of a search that the user does not set."""
    if _is_set(draft, _SEARCH, options.sweeps) or _is_set(draft, _USERS, options.sweeps):
        raise ConfigError("--users auto searches for the number of users; leave -P of its keys out")
    made = {} if _is_set(draft, _TRIES, (*overrides, *options.sweeps)) else {_TRIES: str(_EPOCHS)}
    if _is_set(draft, _SEARCH, overrides):
        if draft.data["inference"].get("search") is None:
            raise ConfigError("--users auto needs inference.search; leave -S inference.search=null out")
        return made
    keys = draft.with_settings({}).inference
    assert keys is not None
    return {**made, _SEARCH: f"{{most: {_most(keys, options, machine)}}}"}


def _most(keys: InferenceKeys, options: Options, machine: Site) -> int:
    """Return the largest number of users that a search tries: as many as half of the free space of the folder for
    datasets holds, and as can be planned.
    """
    if keys.trace is not None:
        try:
            keys = structs.replace(keys, trace=request_trace.described(keys.trace))
        except ValueError as fault:
            raise ConfigError(f"inference.{fault}") from fault
    if keys.trace is not None and keys.trace.has_arrivals:
        raise ConfigError(
            "--users auto: the times of the requests of a trace do not depend on users; set --users N, and vary the "
            "load with -P inference.trace.speed=1,2,4"
        )
    ranks = max(options.nodes or (1,)) * max(options.ranks_per_node or (machine.ranks_per_node,))
    most = min(_MOST_USERS, int(MOST_REQUESTS / keys.requests_of_a_user))
    most = max(keys.users, min(most, _held(keys, ranks, Path(plan.data_directory(machine, options.data)))))
    while most > keys.users:
        asked = structs.replace(keys, users=most, search=None)
        try:
            kv_tiers.require(asked, kv_requests.of_rank(asked, ranks, 0))
            break
        except ConfigError:
            most = max(keys.users, most // 2)
    return most


def _held(keys: InferenceKeys, ranks: int, data: Path) -> int:
    """Return the number of users whose blocks half of the free space of a folder holds."""
    space = filesystem.free(filesystem.existing(data)) * _USED
    if keys.capacity is not None and keys.capacity * ranks <= space:
        return _MOST_USERS
    users = max(_SAMPLED, keys.users)
    needed = kv_requests.most_bytes(structs.replace(keys, users=users, search=None), ranks)
    return int(users * space / max(needed, 1))
