"""placeholder"""


def demo() -> None:
    """Write a small log, read it back and dump it."""
