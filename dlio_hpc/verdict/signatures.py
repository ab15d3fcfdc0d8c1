"""Signatures of decisions on baselines, made and checked by ssh-keygen(1) with the keys that users have for SSH.

A user or a facility can have a file `allowed_signers` (ssh-keygen(1), section ALLOWED SIGNERS) in the folder of their
files. In that case, only decisions that are signed with a key of this file are valid.
"""

import os
import re
import subprocess
from pathlib import Path

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError, InfrastructureError, about
from dlio_hpc.config import search_path

ALLOWED = "allowed_signers"
SUFFIX = ".sig"
# Purpose of the signatures. A signature that was made for another purpose, such as a Git commit, is not valid.
_NAMESPACE = "dlio-hpc"
_PATIENCE_S = 60
# Beginning of the file of a private key, or of a public one.
_MARKS = re.compile(rb"-----BEGIN |(?:ssh|sk|ecdsa)-")
# Beginning of a PEM file that is no key of SSH.
_OTHER_PEM = re.compile(rb"-----BEGIN (?:TRUSTED |NEW )?(CERTIFICATE(?: REQUEST)?|PUBLIC KEY|PKCS7)-----")
# Line of the file that is no comment: principals, options, type and key.
_KEY = re.compile(r"^[^#\s]\S*\s(?:.*\s)?(?:ssh|sk|ecdsa)-\S+\s+AAAA")


def allowed() -> Path | None:
    """Return the first file `allowed_signers` in the folders of users and facilities, or None if there is none. Raise
    ConfigError if no line of the file names a key, or if it is not a file, for example a broken link.
    """
    paths = (folder / ALLOWED for folder in search_path.folders())
    path = next((path for path in paths if os.path.lexists(path)), None)
    if path is not None and not path.is_file():
        raise ConfigError(f"{path} is not a file; remove it to check no signatures, or put the file in its place")
    if path is not None and not any(_KEY.search(line) for line in serialization.read_text(path).splitlines()):
        raise ConfigError(
            f"{path} names no key, so all decisions on baselines would be ignored; a line is such as: "
            'alice@example.org namespaces="dlio-hpc" ssh-ed25519 AAAA...; remove the file to check no signatures'
        )
    return path


def sign(path: Path, key: Path) -> None:
    """Write the signature of a file beside it. key: file of a private SSH key, or of a public key whose private key is
    in ssh-agent. Raise ConfigError if the key cannot sign.
    """
    if not key.is_file():
        raise ConfigError(f"--sign {key}: there is no such file; give an SSH key, such as ~/.ssh/id_ed25519")
    if not _MARKS.match(_beginning(key)):
        raise ConfigError(f"--sign {key}: the file is not an SSH key; give one, such as ~/.ssh/id_ed25519")
    if (other := _OTHER_PEM.match(_beginning(key))) is not None:
        raise ConfigError(
            f"--sign {key}: the file is a {other[1].decode().lower()} (PEM) and not an SSH key; give one, such as "
            "~/.ssh/id_ed25519, or make one with ssh-keygen -t ed25519"
        )
    done = _run(["-Y", "sign", "-q", "-f", os.fspath(key), "-n", _NAMESPACE, os.fspath(path)], b"")
    if done.returncode:
        reason = _reason(done)
        advice = "; give the private key, or load it with ssh-add" if "No private key found" in reason else ""
        raise ConfigError(f"--sign {key}: ssh-keygen cannot sign with this key: {reason}{advice}")


def _beginning(path: Path) -> bytes:
    with about(path), path.open("rb") as file:
        return file.read(64)


def signer(path: Path, content: bytes, allowed_signers: Path) -> str | None:
    """Return the name of the user who signed a file, as given in `allowed_signers`. Return None if there is no valid
    signature by one of its keys next to the file. content: bytes of the file.
    """
    signature = path.with_name(path.name + SUFFIX)
    if not signature.is_file():
        return None
    of_signature = ["-f", os.fspath(allowed_signers), "-s", os.fspath(signature)]
    names = _run(["-Y", "find-principals", *of_signature], b"").stdout.decode(errors="replace").splitlines()
    for name in names[:1]:
        if not _run(["-Y", "verify", "-n", _NAMESPACE, "-I", name, *of_signature], content).returncode:
            return name
    return None


def _run(arguments: list[str], content: bytes) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", *arguments], input=content, capture_output=True, timeout=_PATIENCE_S, check=False
        )
    except FileNotFoundError as fault:
        raise ConfigError("ssh-keygen is needed for signatures of baselines, but it is not installed") from fault
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise InfrastructureError(f"ssh-keygen gave no answer: {fault}") from fault


def _reason(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"it ended with exit code {done.returncode}"
