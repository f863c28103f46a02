"""Flips, cuts, inserts, repeats: the output of a hostile or broken writer."""

from random import Random


def damage(content: bytes, seed: Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(seed.randrange(1, 4)):
        at = seed.randrange(len(damaged)) if damaged else 0
        match seed.randrange(5):
            case 0 if damaged:
                damaged[at] = seed.choice([0, 1, 2, 0x7F, 0x80, 0xFF, seed.randrange(256)])
            case 1:
                del damaged[at:]
            case 2:
                damaged[at:at] = seed.randbytes(seed.randrange(1, 6))
            case 3:
                damaged[at : at + 3] = b""
            case _:
                damaged += damaged[at:]
    return bytes(damaged)
