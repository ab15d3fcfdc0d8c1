"""Apptainer and Podman-HPC for computers without them: programs that start a program in an image directory, with a
mount namespace of its own.

They enforce what the engines' manuals say: they refuse options that they do not know and paths that do not exist, hide
all paths that are not bound, do not let ranks write to paths that are bound with ro, and start in the named directory.
apptainer(1) passes its environment on, except for PATH and LD_LIBRARY_PATH; podman-run(1) passes on what --env names.
The images of Podman-HPC are the folders of the folder that CONTAINER_IMAGES names.
"""

import fnmatch
import os
import shutil
import subprocess
import sys
from pathlib import Path

_MOUNTS = """
image=$1; shift
for path in proc dev sys; do mkdir -p "$image/$path"; mount --rbind "/$path" "$image/$path"; done
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir -p "$image$2"; else mkdir -p "$image${2%/*}"; touch "$image$2"; fi
  mount --bind "$1" "$image$2"
  [ "$3" != ro ] || mount -o remount,bind,ro "$image$2"
  shift 3
done
shift
exec chroot "$image" env --chdir="$@"
"""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FLAGS = {"--rm", "--network=host", "--uts=host", "--pid=host", "--ipc=host", "--entrypoint="}
_VALUES = {"apptainer": {"--bind", "--pwd", "--no-mount"}, "podman-hpc": {"--volume", "--workdir", "--env"}}


def install(folder: Path) -> Path:
    """Write the commands to `folder`, which tests put on PATH. Return it."""
    folder.mkdir(exist_ok=True)
    for name in ("apptainer", "podman-hpc"):
        (folder / name).write_text(f"#!{sys.executable}\n{Path(__file__).read_text()}")
        (folder / name).chmod(0o755)
    return folder


def missing() -> str | None:
    """Return why this computer cannot start the stand-ins; None if it can."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        return "stand-ins for container engines need root and unshare(1)"
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "stand-ins for container engines need mount namespaces"


def image(folder: Path) -> Path:
    """Make an image that has no files of its own: tests bind those of this computer. Return its folder."""
    for name in ("usr", "etc", "tmp", "proc", "dev", "sys", "var/tmp"):
        (folder / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            (folder / name).symlink_to(f"usr/{name}")
        elif Path("/", name).exists():
            (folder / name).mkdir()
    return folder


def _options(name: str, words: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the options with their values, and the image with its program."""
    options = []
    while words and words[0].startswith("-"):
        option, separator, value = words[0].partition("=")
        is_flag = name == "podman-hpc" and words[0] in _FLAGS
        if not is_flag and (option not in _VALUES[name] or not separator):
            sys.exit(f"Error: unknown flag: {words[0]}")
        options.append((option, value))
        words = words[1:]
    if len(words) < 2:
        sys.exit("Error: requires an image and a command")
    return options, words


def _environment(name: str, options: list[tuple[str, str]]) -> dict[str, str]:
    if name == "apptainer":
        inside = {"PATH": _PATH, "LD_LIBRARY_PATH": "/.singularity.d/libs"}
        return {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"} | inside
    if ("--uts", "host") not in options:
        sys.exit("the stand-in only supports --uts=host")
    passed = [value for option, value in options if option == "--env"]
    kept = {key: value for key, value in os.environ.items() if any(fnmatch.fnmatchcase(key, one) for one in passed)}
    return {**kept, "PATH": _PATH, "HOME": "/root", "container": "podman"}


def main() -> None:
    name, verb, words = Path(sys.argv[0]).name, sys.argv[1], sys.argv[2:]
    store = Path(os.environ.get("CONTAINER_IMAGES", "/nowhere"))
    if (name, verb) == ("podman-hpc", "images"):
        print(*("0123abcd" for word in words if (store / word).is_dir()))
        return
    if (name, verb) not in {("apptainer", "exec"), ("podman-hpc", "run")}:
        sys.exit(f"Error: unknown command {verb}")
    options, (picture, *program) = _options(name, words)
    folder = store / picture if name == "podman-hpc" else Path(picture)
    if not folder.is_dir():
        sys.exit(f"Error: {picture}: image not known")
    mounts: list[str] = []
    for option, value in options:
        if option in {"--bind", "--volume"}:
            source, target, *rest = [*value.split(":"), *([value] if ":" not in value else [])]
            if not Path(source).exists():
                sys.exit(f"Error: statfs {source}: no such file or directory")
            mounts += [source, target, *(rest or ["rw"])]
    (directory,) = (value for option, value in options if option in {"--pwd", "--workdir"})
    command = ["unshare", "--mount", "sh", "-ec", _MOUNTS, "sh", str(folder), *mounts, "--", directory, *program]
    os.execvpe("unshare", command, _environment(name, options) | {"PATH": os.environ["PATH"]})


if __name__ == "__main__":
    main()
