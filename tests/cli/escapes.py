"""A malicious name, and a check whether printed text is harmless."""

# A window title, a clear of the screen in one byte, a change of direction, a line of its own.
EVIL = "\x1b]0;evil\x07\x9b2J\u202e\nmoldau all is well"


def is_harmless(printed: str) -> bool:
    lines = printed.replace("\r\n", "\n").split("\n")
    return all(line.isprintable() and not line.startswith("moldau all") for line in lines)
