"""The Python twin of _placement.pyx."""


def java_hash(text: str) -> int:
    """String.hashCode(): over UTF-16 code units, 32 bits, signed."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8) + units[at + 1]) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value
