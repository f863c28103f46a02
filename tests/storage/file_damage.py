"""Ways to damage a small file: every cut, every byte changed, pieces lost, doubled or added."""

from collections.abc import Iterator


def cuts(content: bytes) -> Iterator[bytes]:
    """Every shorter file except the empty one."""
    for size in range(1, len(content)):
        yield content[:size]


def changes(content: bytes) -> Iterator[bytes]:
    """The same size with one byte changed: each bit flipped, zeroed, or made another character."""
    for place, byte in enumerate(content):
        for other in {*(byte ^ 1 << bit for bit in range(8)), 0, 0xFF, *b"09a- \n"} - {byte}:
            yield content[:place] + bytes([other]) + content[place + 1 :]


def additions(content: bytes) -> Iterator[bytes]:
    yield content + content
    for extra in (b"\0", b"\n", b" ", b"7", b"\0" * 512, b"\xff\xfe", b"garbage\n"):
        yield content + extra
        yield extra + content


def all_damages(content: bytes) -> Iterator[bytes]:
    yield from cuts(content)
    yield from changes(content)
    yield from additions(content)
