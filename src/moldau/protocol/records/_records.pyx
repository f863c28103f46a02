"""The loops over record batches. `_records_twin.py` is the same in Python; a test keeps them equal.

Bounds are checked by hand: a position is compared with the end of its record before each read, and
the end of a record with the end of the batch. Nothing here trusts a length from the wire.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from moldau.protocol.records.checksum import crc32c
from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError, MoldauError
from moldau.protocol.records.record import Record
from moldau.protocol.records.record_columns import BinaryColumn, DecodedColumns, EncodedRows, HeaderColumns

cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX
    ctypedef struct PyTypeObject:
        object (*tp_alloc)(PyTypeObject*, Py_ssize_t)

cdef extern from *:
    """
    #define moldau_swap32(x) __builtin_bswap32(x)
    #define moldau_swap64(x) __builtin_bswap64(x)
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #error "the compiled loops are written for little-endian machines; use the Python twins"
    #endif
    """
    uint32_t moldau_swap32(uint32_t) noexcept nogil
    uint64_t moldau_swap64(uint64_t) noexcept nogil

cdef extern from *:
    """
    /* Since 3.14 a tuple caches its hash, and -1 means that there is none; fresh memory is 0. */
    #if PY_VERSION_HEX >= 0x030E0000
    #define moldau_forget_hash(tuple) (((PyTupleObject *)(tuple))->ob_hash = -1)
    #else
    #define moldau_forget_hash(tuple) ((void)0)
    #endif
    """
    void moldau_forget_hash(object tuple) noexcept

cdef enum:
    HEADER_BYTES = 61
    LOG_OVERHEAD = 12
    RECORD_BYTES_MIN = 7
    RECORD_ERRORS_MAX = 1000
    # Compressed, append time, control, delete horizon.
    UNCOMMON_FLAGS = 0x6F

NO_KEY = 0
BAD_TIMESTAMP = 1
BAD_OFFSET_DELTA = 2
BAD_NULL = 3

INCOMPLETE = "incomplete batch"
BAD_LENGTH = "impossible batch length"
BAD_MAGIC = "unknown magic"
BAD_CRC = "checksum mismatch"
BAD_OFFSETS = "offsets do not increase"

FINISHED = "the columns are finished; begin a new sink"
COLUMN_FULL = "a column of more than 2 GiB does not fit into Arrow's layout; decode fewer batches"

cdef tuple PROBLEMS = (
    "",
    "record length is not a number",
    "record runs past its batch",
    "record is empty",
    "timestamp runs past its record",
    "offset runs past its record",
    "key runs past its record",
    "value runs past its record",
    "impossible header count",
    "header runs past its record",
    "header key is null",
    "record has bytes after its headers",
)

cdef struct Parsed:
    Py_ssize_t next
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_length
    int32_t value_length
    int32_t header_count
    # A length below -1 somewhere: read as null, as Java does; librdkafka hangs on it.
    int32_t odd_nulls
    Py_ssize_t key_start
    Py_ssize_t value_start
    Py_ssize_t headers_start


cdef invalid(str detail):
    return KafkaError(ErrorCode.INVALID_RECORD, detail)


cdef inline int32_t big32(const uint8_t* at) noexcept nogil:
    cdef uint32_t raw
    memcpy(&raw, at, 4)
    return <int32_t>moldau_swap32(raw)


cdef inline int64_t big64(const uint8_t* at) noexcept nogil:
    cdef uint64_t raw
    memcpy(&raw, at, 8)
    return <int64_t>moldau_swap64(raw)


cdef inline int64_t wrapping_sum(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a + <uint64_t>b)


cdef class _View:
    """Holds a buffer for the duration of a call."""
    cdef Py_buffer view
    cdef const uint8_t* bytes
    cdef Py_ssize_t length
    cdef bint held

    def __cinit__(self, buffer):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.held = True
        self.bytes = <const uint8_t*>self.view.buf
        self.length = self.view.len

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


def scan_batches(buffer, Py_ssize_t start, Py_ssize_t end, bint verify_crc, Py_ssize_t base=0):
    cdef _View view = _View(buffer)
    cdef const uint8_t* at
    cdef Py_ssize_t position = start, left, size
    cdef int64_t base_offset, last_offset, next_offset = 0
    cdef int32_t delta
    cdef list found = []
    if not 0 <= start <= end <= view.length:
        raise ValueError(f"scan of [{start}, {end}) in {view.length} bytes")
    content = memoryview(buffer) if verify_crc else None
    while position < end:
        at = view.bytes + position
        left = end - position
        if left < LOG_OVERHEAD:
            return found, base + position, INCOMPLETE
        size = LOG_OVERHEAD + <Py_ssize_t>big32(at + 8)
        if size < HEADER_BYTES:
            return found, base + position, BAD_LENGTH
        if left > 16 and at[16] != 2:
            return found, base + position, BAD_MAGIC
        if size > left:
            return found, base + position, INCOMPLETE
        if verify_crc and <uint32_t>crc32c(content[position + 21 : position + size]) != <uint32_t>big32(at + 17):
            return found, base + position, BAD_CRC
        base_offset = big64(at)
        delta = big32(at + 23)
        last_offset = wrapping_sum(base_offset, delta)
        if base_offset < next_offset or last_offset < base_offset:
            return found, base + position, BAD_OFFSETS
        found.append((
            base + position, size, base_offset, last_offset, big32(at + 12), big64(at + 35),
            <int16_t>((at[21] << 8) | at[22]), big64(at + 43), <int16_t>((at[51] << 8) | at[52]),
            big32(at + 53), delta, big32(at + 57), big64(at + 27),
        ))
        next_offset = wrapping_sum(last_offset, 1)
        position += size
    return found, base + position, None


def batches_within(
    buffer, Py_ssize_t reach, Py_ssize_t left, int64_t floor_offset, int64_t offset_limit
):
    cdef _View view = _View(buffer)
    cdef const uint8_t* at
    cdef Py_ssize_t position = 0, size
    cdef int64_t base_offset, last_offset, next_offset = -1
    while position + HEADER_BYTES <= view.length:
        at = view.bytes + position
        size = LOG_OVERHEAD + <Py_ssize_t>big32(at + 8)
        if size < HEADER_BYTES or at[16] != 2 or size > left - position:
            return -1, -1, None
        base_offset = big64(at)
        last_offset = wrapping_sum(base_offset, big32(at + 23))
        if base_offset < floor_offset or last_offset < base_offset or last_offset >= offset_limit:
            return -1, -1, None
        if size > reach - position:
            return position, next_offset, (size, base_offset, last_offset, big32(at + 12), big64(at + 35))
        position += size
        floor_offset = next_offset = last_offset + 1
    return position, next_offset, None


cdef inline Py_ssize_t read_varint(
    const uint8_t* p, Py_ssize_t position, Py_ssize_t limit, int32_t* out
) noexcept nogil:
    """The position after it, or -1."""
    cdef uint32_t raw
    cdef uint8_t byte
    cdef int shift
    if position >= limit:
        return -1
    byte = p[position]
    position += 1
    if byte < 0x80:
        out[0] = <int32_t>(byte >> 1) ^ -<int32_t>(byte & 1)
        return position
    raw = byte & 0x7F
    shift = 7
    while shift < 35:
        if position >= limit:
            return -1
        byte = p[position]
        position += 1
        raw |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            out[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
            return position
        shift += 7
    return -1


cdef inline Py_ssize_t read_varlong(
    const uint8_t* p, Py_ssize_t position, Py_ssize_t limit, int64_t* out
) noexcept nogil:
    cdef uint64_t raw = 0
    cdef uint8_t byte
    cdef int shift = 0
    while shift < 70:
        if position >= limit:
            return -1
        byte = p[position]
        position += 1
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            out[0] = <int64_t>((raw >> 1) ^ (0 - (raw & 1)))
            return position
        shift += 7
    return -1


cdef inline Py_ssize_t read_bytes(
    const uint8_t* p, Py_ssize_t position, Py_ssize_t limit, int32_t* length, int32_t* odd_nulls
) noexcept nogil:
    """The start of a nullable byte string, or -1; its length is -1 for null."""
    position = read_varint(p, position, limit, length)
    if position < 0 or length[0] > limit - position:
        return -1
    if length[0] < 0:
        if length[0] < -1:
            odd_nulls[0] += 1
        length[0] = -1
    return position


cdef inline Py_ssize_t end_of(Py_ssize_t start, int32_t length) noexcept nogil:
    return start + length if length > 0 else start


cdef int parse_headers(
    const uint8_t* p, Py_ssize_t position, Py_ssize_t limit, int32_t count, int32_t* odd_nulls
) noexcept nogil:
    cdef int32_t index, length = 0
    for index in range(count):
        position = read_bytes(p, position, limit, &length, odd_nulls)
        if position < 0:
            return 9
        if length < 0:
            return 10
        position = read_bytes(p, position + length, limit, &length, odd_nulls)
        if position < 0:
            return 9
        position = end_of(position, length)
    return 0 if position == limit else 11


cdef inline int parse_record(
    const uint8_t* p, Py_ssize_t position, Py_ssize_t end, Parsed* record
) noexcept nogil:
    """0, or an index into PROBLEMS."""
    cdef int32_t length
    cdef Py_ssize_t limit
    position = read_varint(p, position, end, &length)
    if position < 0:
        return 1
    if length < 0 or length > end - position:
        return 2
    if length == 0:
        return 3
    limit = position + length
    record.next = limit
    position = read_varlong(p, position + 1, limit, &record.timestamp_delta)
    if position < 0:
        return 4
    position = read_varint(p, position, limit, &record.offset_delta)
    if position < 0:
        return 5
    record.odd_nulls = 0
    position = read_bytes(p, position, limit, &record.key_length, &record.odd_nulls)
    if position < 0:
        return 6
    record.key_start = position
    position = read_bytes(
        p, end_of(position, record.key_length), limit, &record.value_length, &record.odd_nulls
    )
    if position < 0:
        return 7
    record.value_start = position
    position = read_varint(p, end_of(position, record.value_length), limit, &record.header_count)
    if position < 0 or record.header_count < 0 or record.header_count > limit - position:
        return 8
    record.headers_start = position
    if record.header_count == 0:
        return 0 if position == limit else 11
    return parse_headers(p, position, limit, record.header_count, &record.odd_nulls)


cdef int check_bounds(_View view, Py_ssize_t start, Py_ssize_t end, int64_t count) except -1:
    if not 0 <= start <= end <= view.length:
        raise ValueError(f"records in [{start}, {end}) of {view.length} bytes")
    if count < 0 or count > (end - start) // RECORD_BYTES_MIN:
        raise invalid(f"{count} records cannot be in {end - start} bytes")
    return 0


cdef inline Py_ssize_t again(Py_ssize_t position) except -1:
    """Checked bytes can only be wrong now if another thread writes into the buffer."""
    if position < 0:
        raise invalid("the records change while they are read")
    return position


cdef tuple read_headers(const uint8_t* p, Parsed* record):
    """The headers of a record that parse_record() has accepted."""
    cdef Py_ssize_t position = record.headers_start
    cdef int32_t index, length = 0
    cdef tuple headers = PyTuple_New(record.header_count)
    cdef object name, content, pair
    for index in range(record.header_count):
        position = again(read_bytes(p, position, record.next, &length, &record.odd_nulls))
        name = PyUnicode_DecodeUTF8(<char*>p + position, max(length, 0), "replace")
        position = again(read_bytes(p, end_of(position, length), record.next, &length, &record.odd_nulls))
        content = None if length < 0 else PyBytes_FromStringAndSize(<char*>p + position, length)
        position = end_of(position, length)
        pair = (name, content)
        Py_INCREF(pair)
        PyTuple_SET_ITEM(headers, index, pair)
    return headers


cdef inline object new_record(object offset, object timestamp, object key, object value, object headers):
    """Record(…) without a call: memory for a tuple of that type, and its five items."""
    cdef object record = (<PyTypeObject*>Record).tp_alloc(<PyTypeObject*>Record, 5)
    moldau_forget_hash(record)
    Py_INCREF(offset)
    PyTuple_SET_ITEM(record, 0, offset)
    Py_INCREF(timestamp)
    PyTuple_SET_ITEM(record, 1, timestamp)
    Py_INCREF(key)
    PyTuple_SET_ITEM(record, 2, key)
    Py_INCREF(value)
    PyTuple_SET_ITEM(record, 3, value)
    Py_INCREF(headers)
    PyTuple_SET_ITEM(record, 4, headers)
    return record


def decode_records(
    buffer, tuple bounds, int64_t count, int64_t base_offset, int64_t base_timestamp, append_time
):
    cdef _View view = _View(buffer)
    cdef const uint8_t* p = view.bytes
    cdef Py_ssize_t position = bounds[0], end = bounds[1], index
    cdef Parsed record
    cdef int problem
    cdef object key, value, headers, decoded, timestamp
    check_bounds(view, position, end, count)
    cdef list found = []
    for index in range(count):
        problem = parse_record(p, position, end, &record)
        if problem:
            raise invalid(PROBLEMS[problem])
        position = record.next
        key = None
        if record.key_length >= 0:
            key = PyBytes_FromStringAndSize(<char*>p + record.key_start, record.key_length)
        value = None
        if record.value_length >= 0:
            value = PyBytes_FromStringAndSize(<char*>p + record.value_start, record.value_length)
        headers = () if record.header_count == 0 else read_headers(p, &record)
        timestamp = append_time
        if append_time is None:
            timestamp = wrapping_sum(base_timestamp, record.timestamp_delta)
        decoded = new_record(
            wrapping_sum(base_offset, record.offset_delta), timestamp, key, value, headers
        )
        found.append(decoded)
    if position != end:
        raise invalid("bytes are left after the last record")
    return found


def validate_records(
    buffer, tuple bounds, int64_t count, int64_t base_timestamp, timestamp_range, bint keys_required
):
    cdef _View view = _View(buffer)
    cdef const uint8_t* p = view.bytes
    cdef Py_ssize_t position = bounds[0], end = bounds[1]
    cdef int64_t index, timestamp, earliest = 0, latest = 0
    cdef int64_t max_timestamp = INT64_MIN, max_index = -1, refused_count = 0
    cdef bint ranged = timestamp_range is not None
    cdef Parsed record
    cdef int problem, kind
    cdef list refused = []
    check_bounds(view, position, end, count)
    if ranged:
        earliest, latest = timestamp_range
    for index in range(count):
        problem = parse_record(p, position, end, &record)
        if problem:
            raise invalid(PROBLEMS[problem])
        position = record.next
        timestamp = wrapping_sum(base_timestamp, record.timestamp_delta)
        kind = -1
        if record.offset_delta != index:
            kind = 2
        elif record.odd_nulls:
            kind = 3
        elif keys_required and record.key_length < 0:
            kind = 0
        elif ranged and timestamp != -1 and (timestamp < earliest or timestamp > latest):
            kind = 1
        if kind >= 0:
            refused_count += 1
            if refused_count <= RECORD_ERRORS_MAX:
                refused.append((index, kind, timestamp))
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            max_index = index
    if position != end:
        raise invalid("bytes are left after the last record")
    return max_timestamp, max_index, refused_count, refused


cdef inline void put_big64(uint8_t* at, int64_t number) noexcept nogil:
    cdef uint64_t raw = moldau_swap64(<uint64_t>number)
    memcpy(at, &raw, 8)


cdef inline void put_big32(uint8_t* at, int32_t number) noexcept nogil:
    cdef uint32_t raw = moldau_swap32(<uint32_t>number)
    memcpy(at, &raw, 4)


cdef bint walk_is_clean(
    const uint8_t* p, Py_ssize_t length, int32_t count, int64_t base_timestamp,
    int64_t earliest, int64_t latest, bint keys_required, int64_t expected_max
) noexcept nogil:
    """Whether the records are sound and within the limits, and the largest timestamp is true."""
    cdef Parsed record
    cdef Py_ssize_t position = HEADER_BYTES
    cdef int64_t timestamp, max_timestamp = -1
    cdef int32_t index
    for index in range(count):
        if parse_record(p, position, length, &record) != 0 or record.offset_delta != index:
            return False
        if record.odd_nulls or (keys_required and record.key_length < 0):
            return False
        timestamp = wrapping_sum(base_timestamp, record.timestamp_delta)
        if timestamp != -1 and (timestamp < earliest or timestamp > latest):
            return False
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        position = record.next
    return position == length and max_timestamp == expected_max


def stamp_batch(buffer, int64_t base_offset, int32_t leader_epoch, tuple limits):
    cdef _View view = _View(buffer)
    cdef uint8_t* at = <uint8_t*>view.bytes
    cdef Py_ssize_t size = view.length, size_max
    cdef int64_t earliest, latest, max_timestamp, base_timestamp, producer_id
    cdef int32_t count, delta, sequence
    cdef int16_t attributes
    cdef bint keys_required
    earliest, latest, keys_required, size_max = limits
    if view.view.readonly or size < HEADER_BYTES or size > size_max or at[16] != 2:
        return None
    if LOG_OVERHEAD + <Py_ssize_t>big32(at + 8) != size or big64(at) != 0:
        return None
    attributes = <int16_t>((at[21] << 8) | at[22])
    delta = big32(at + 23)
    count = big32(at + 57)
    producer_id = big64(at + 43)
    sequence = big32(at + 53)
    if attributes & UNCOMMON_FLAGS or count <= 0 or delta != count - 1:
        return None
    if producer_id > -1 and sequence < 0:
        return None
    if count > (size - HEADER_BYTES) // RECORD_BYTES_MIN:
        return None
    base_timestamp = big64(at + 27)
    max_timestamp = big64(at + 35)
    if not walk_is_clean(
        at, size, count, base_timestamp, earliest, latest, keys_required, max_timestamp
    ):
        return None
    if <uint32_t>crc32c(memoryview(buffer)[21:]) != <uint32_t>big32(at + 17):
        return None
    put_big64(at, base_offset)
    put_big32(at + 12, leader_epoch)
    return (
        0, size, base_offset, wrapping_sum(base_offset, delta), leader_epoch, max_timestamp,
        attributes, producer_id, <int16_t>((at[51] << 8) | at[52]), sequence, delta, count,
        base_timestamp,
    )


cdef inline int size_of(uint64_t raw) noexcept nogil:
    """The encoded size of a zigzag number."""
    cdef int size = 1
    while raw > 0x7F:
        raw >>= 7
        size += 1
    return size


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline uint8_t* write_varint(uint8_t* at, uint64_t raw) noexcept nogil:
    while raw > 0x7F:
        at[0] = <uint8_t>(raw | 0x80)
        at += 1
        raw >>= 7
    at[0] = <uint8_t>raw
    return at + 1


cdef class Growing:
    """A bytearray that doubles; `store` keeps the memory alive and becomes the result."""
    cdef bytearray store
    cdef uint8_t* bytes
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity

    def __cinit__(self, Py_ssize_t capacity):
        self.store = PyByteArray_FromStringAndSize(NULL, capacity)
        self.bytes = <uint8_t*>PyByteArray_AS_STRING(self.store)
        self.used = 0
        self.capacity = capacity

    cdef inline int reserve(self, Py_ssize_t more) except -1:
        if more > self.capacity - self.used:
            self.grow(more)
        return 0

    cdef int grow(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t capacity = max(2 * self.capacity, self.used + more, 64)
        PyByteArray_Resize(self.store, capacity)
        self.bytes = <uint8_t*>PyByteArray_AS_STRING(self.store)
        self.capacity = capacity
        return 0

    cdef inline void write(self, const uint8_t* content, Py_ssize_t length) noexcept:
        """Call reserve() first."""
        memcpy(self.bytes + self.used, content, length)
        self.used += length

    cdef bytearray finish(self):
        cdef bytearray store = self.store
        PyByteArray_Resize(store, self.used)
        self.capacity = 0
        self.store = None
        return store


cdef int append_bytes(Growing out, content) except -1:
    """A length and the bytes; None is null."""
    cdef _View view
    cdef const uint8_t* start
    cdef Py_ssize_t length
    if content is None:
        out.reserve(1)
        out.bytes[out.used] = 1
        out.used += 1
        return 0
    if type(content) is bytes:
        start = <const uint8_t*><char*>content
        length = len(<bytes>content)
    else:
        view = _View(content)
        start = view.bytes
        length = view.length
    out.reserve(length + 10)
    out.used = write_varint(out.bytes + out.used, zigzag(length)) - out.bytes
    out.write(start, length)
    return 0


cdef inline int append_varint(Growing out, int64_t number) except -1:
    out.reserve(10)
    out.used = write_varint(out.bytes + out.used, zigzag(number)) - out.bytes
    return 0


def encode_records(
    records, int64_t base_timestamp, Py_ssize_t reserved_bytes, int64_t base_offset=0
):
    cdef Growing out = Growing(reserved_bytes + 4096)
    cdef Growing body = Growing(1024)
    cdef int64_t timestamp, delta, place
    cdef int64_t lowest = max(<object>base_offset + INT32_MIN, INT64_MIN)
    cdef int64_t highest = min(<object>base_offset + INT32_MAX, INT64_MAX)
    cdef object offset, offset_delta, stamp, key, value, headers, name, content
    cdef Py_ssize_t index
    for index in range(reserved_bytes):
        out.bytes[index] = 0
    out.used = reserved_bytes
    for offset, stamp, key, value, headers in records:
        place = offset
        if place < lowest or place > highest:
            offset_delta = offset - base_offset
            raise OverflowError(f"offset delta {offset_delta} does not fit into 32 bits")
        delta = place - base_offset
        timestamp = stamp
        body.used = 0
        body.bytes[0] = 0
        body.used = 1
        append_varint(body, <int64_t>(<uint64_t>timestamp - <uint64_t>base_timestamp))
        append_varint(body, delta)
        append_bytes(body, key)
        append_bytes(body, value)
        append_varint(body, len(headers))
        for name, content in headers:
            append_bytes(body, name.encode())
            append_bytes(body, content)
        append_varint(out, body.used)
        out.reserve(body.used)
        out.write(body.bytes, body.used)
    return out.finish()


include "_record_columns.pxi"
include "_record_cursor.pxi"
include "_record_times.pxi"
