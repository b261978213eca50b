"""Which topics a filter with wildcards is for, and what can be neither."""

from __future__ import annotations

from .codes import Code
from .errors import Refused

MAX_BYTES = 255


def wild(filter: str) -> bool:
    return "+" in filter or "#" in filter


def fault(filter: str) -> str:
    """Why it can't be a filter; empty: it can."""
    if not filter or _size(filter) > MAX_BYTES:
        return f"it has {_size(filter)} bytes of UTF-8, it must have 1 to {MAX_BYTES}"
    if not _encodes(filter):
        return "it is not UTF-8"
    levels = filter.split("/")
    for at, level in enumerate(levels):
        if not level:
            return "empty level"
        if len(level) > 1 and wild(level):
            return "a wildcard is a whole level"
        if level == "#" and at < len(levels) - 1:
            return "# is the last level"
    return ""


def match(filter: str, topic: str) -> bool:
    """Whether a valid filter covers a topic; a wildcard covers no first level that begins with $."""
    if filter == topic:
        return not wild(filter)
    wanted, levels = filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in ("+", "#"):
        return False
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at == len(levels) or level not in ("+", levels[at]):
            return False
    return len(wanted) == len(levels)


def check(topic: str) -> None:
    """Refuses what is no topic to publish to."""
    why = fault(topic)
    if not why and wild(topic):
        why = "a topic to publish to has no wildcard"
    if not why and any(c < " " or "\x7f" <= c < "\xa0" for c in topic):
        why = "control character"
    if why:
        raise Refused(Code.BAD_TOPIC, f"topic {topic[:40]!r}: {why}")
    if topic.startswith("$"):
        raise Refused(Code.FORBIDDEN, f"topic {topic[:40]!r}: topics that begin with $ are the mesh's own")


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))
