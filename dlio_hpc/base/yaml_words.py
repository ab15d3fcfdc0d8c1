"""Values in messages, as a person writes them in YAML: text, numbers, true, false, null, lists and mappings."""

# Maximum characters of a value, and levels of nesting, that a message shows.
_MOST, _DEEPEST = 60, 3


def shown(value: object) -> str:
    """Return a value with its kind, such as: text 'four', 4, true, null (empty), the list [1, 2]."""
    if isinstance(value, str):
        return f"text {plainly(value)}"
    if isinstance(value, (list, tuple)):
        return f"the list {plainly(value)}"
    return f"the mapping {plainly(value)}" if isinstance(value, dict) else plainly(value)


def plainly(value: object) -> str:
    """Return a value without its kind. Text is in quotes. A long value is truncated."""
    if isinstance(value, str):
        return repr(value if len(value) <= _MOST else f"{value[:_MOST]}...")
    if value is None:
        return "null (empty)"
    text = _flow(value, 0)
    if len(text) <= _MOST:
        return text
    return f"{text[:_MOST]}...{text[-1] if isinstance(value, (list, tuple, dict)) else ''}"


def _flow(value: object, level: int) -> str:
    """Return a value in one line of YAML. Values at deep levels are omitted."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple, dict)) and level == _DEEPEST:
        return "..."
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_flow(item, level + 1) for item in value[:_MOST])}]"
    if isinstance(value, dict):
        items = list(value.items())[:_MOST]
        return f"{{{', '.join(f'{key}: {_flow(item, level + 1)}' for key, item in items)}}}"
    if isinstance(value, bytes):
        return "binary data"
    text = str(value)[: _MOST + 1]
    return ("null" if value is None else text) if text.isprintable() else repr(text)
