# The compiled loop of placement.py; the twin is _placement_twin.py.

from libc.stdint cimport int32_t, uint32_t


def java_hash(str text not None):
    cdef uint32_t value = 0
    cdef Py_UCS4 character
    cdef uint32_t point
    for character in text:
        point = <uint32_t>character
        if point >= 0x10000:
            point -= 0x10000
            value = 31 * value + 0xD800 + (point >> 10)
            value = 31 * value + 0xDC00 + (point & 0x3FF)
        else:
            value = 31 * value + point
    return <int32_t>value
