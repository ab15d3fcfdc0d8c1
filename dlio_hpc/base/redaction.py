"""Redaction of reports and logs: secrets, accounts, and user names and passwords in URLs are removed."""

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

# Parts of the names of variables and options whose values are secret.
SECRETS = ("AUTH", "COOKIE", "CRED", "JWT", "KEY", "PASS", "SECRET", "TOKEN")
HIDDEN = "HIDDEN"

_NAMES = "|".join((*SECRETS, "ACCOUNT"))
_SECRET = re.compile(_NAMES, re.IGNORECASE)
_USER_OF_URL = re.compile(r"(?<=://)[^/@\s]+@")
_QUOTED = r"""\\?"[^"]*"|\\?'[^']*'"""
# NAME=VALUE, with or without quotes. NAME: VALUE of an environment variable in YAML or JSON. The option for the account
# of batch systems and of dlio-hpc with its value.
_ASSIGNED = re.compile(rf"(?<![\w.+-])([\w.+-]*(?:{_NAMES})[\w.+-]*)=(?:{_QUOTED}|[^\s'\"]+)", re.IGNORECASE)
_MAPPED = re.compile(rf"(?<!\w)([A-Z0-9_]*(?:{_NAMES})[A-Z0-9_]*)([\"']?\s*:\s*)(?:{_QUOTED}|[^\s,}}\]]+)")
_ACCOUNT = re.compile(r"((?:^|\s)(?:-A|--account)\s+)([^\s'\"]+)")
# Least length of a secret that is searched in other text. A shorter value of a variable that is not of dlio-hpc may be
# a word of a message.
_SHORTEST, _SHORTEST_OF_OTHERS = 3, 8


class Redacted(NamedTuple):
    """Arguments of a command without secrets. hidden: the values that were left out."""

    arguments: list[str]
    hidden: set[str]


def is_secret(name: str) -> bool:
    """Return whether the value of a variable or option with this name is secret, or an account."""
    return _SECRET.search(name) is not None


def without_users(text: str) -> str:
    """Return a text without user names and passwords in URLs."""
    return _USER_OF_URL.sub("", text)


def of_text(text: str, secrets: Sequence[str] = ()) -> str:
    """Return a text without users in URLs and without secrets. A secret is a value that is assigned to the name of a
    secret. Other occurrences of this value are removed, too.
    """
    text = _MAPPED.sub(rf"\1\2{HIDDEN}", _ASSIGNED.sub(rf"\1={HIDDEN}", without_users(text)))
    text = _ACCOUNT.sub(rf"\1{HIDDEN}", text)
    for secret in sorted(secrets, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
    return text


def of_arguments(arguments: Sequence[str]) -> Redacted:
    """Return the arguments of a command without the values of options for secrets and accounts."""
    shown: list[str] = []
    hidden: set[str] = set()
    is_value = False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if is_value:
            shown.append(HIDDEN)
            hidden.add(argument)
        elif equals and re.fullmatch(r"[\w.+-]+", name) and is_secret(name):
            shown.append(f"{name}={HIDDEN}")
            hidden.add(value)
        elif argument.startswith("-A") and len(argument) > 2:
            shown.append(f"-A{HIDDEN}")
            hidden.add(argument[2:])
        else:
            shown.append(of_text(argument))
        is_option = argument == "-A" or (argument.startswith("--") and not equals and is_secret(argument))
        is_value = is_option and not is_value
    return Redacted(shown, {value for value in hidden if len(value) >= _SHORTEST})


def of_environment() -> set[str]:
    """Return the values of environment variables that are secret."""
    return {
        value
        for name, value in os.environ.items()
        if is_secret(name) and len(value) >= (_SHORTEST if name.startswith("DLIO_HPC_") else _SHORTEST_OF_OTHERS)
    }
