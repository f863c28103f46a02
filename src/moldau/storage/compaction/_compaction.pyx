"""The loops of compaction: key -> last offset, and which records of a batch are kept. For all but
the smallest batches they release the interpreter lock, so that a cleaner thread does not hold up
the event loop. Twin: _compaction_twin.py.

Records are walked by hand, with a check against the end of the buffer at every step: a record that
does not fit is CORRUPT_MESSAGE.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from moldau.protocol.error_codes import ErrorCode
from moldau.protocol.errors import KafkaError

SLOT_BYTES = 24

# Below this size, releasing the interpreter lock costs more than the loop takes.
cdef enum:
    RELEASE_BYTES = 2048

cdef struct Slot:
    uint64_t hash_low
    uint64_t hash_high
    int64_t offset_plus_one  # zero is an empty slot

cdef struct RecordView:
    const uint8_t *after_length  # the attributes byte
    const uint8_t *after_timestamp
    const uint8_t *end
    int64_t timestamp_delta
    int64_t offset_delta
    const uint8_t *key
    int64_t key_length  # -1: no key
    bint has_value


# Varints

cdef inline const uint8_t *read_varint(
    const uint8_t *at, const uint8_t *end, int size_max, int64_t *value
) noexcept nogil:
    """Zigzag; NULL if it does not end within `size_max` bytes and before `end`."""
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while at < end and size_max > 0:
        byte = at[0]
        at += 1
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            value[0] = <int64_t>((raw >> 1) ^ (~(raw & 1) + 1))
            return at
        shift += 7
        size_max -= 1
    return NULL


cdef inline uint8_t *write_varint(uint8_t *at, int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while raw >= 0x80:
        at[0] = <uint8_t>(raw | 0x80)
        at += 1
        raw >>= 7
    at[0] = <uint8_t>raw
    return at + 1


cdef inline const uint8_t *read_record(
    const uint8_t *at, const uint8_t *end, RecordView *record
) noexcept nogil:
    """The position after the record, or NULL if it is malformed."""
    cdef int64_t length, value_length
    at = read_varint(at, end, 5, &length)
    if at == NULL or length < 1 or length > end - at:
        return NULL
    end = at + length
    record.after_length = at
    record.end = end
    at = read_varint(at + 1, end, 10, &record.timestamp_delta)
    if at == NULL:
        return NULL
    record.after_timestamp = at
    at = read_varint(at, end, 5, &record.offset_delta)
    if at == NULL:
        return NULL
    at = read_varint(at, end, 5, &record.key_length)
    if at == NULL or record.key_length > end - at:
        return NULL
    record.key = at
    if record.key_length > 0:
        at += record.key_length
    at = read_varint(at, end, 5, &value_length)
    if at == NULL or value_length > end - at:
        return NULL
    record.has_value = value_length >= 0
    return end


# SipHash-2-4 with 128 bits of output: keyed, so that a client cannot construct two keys that
# collide and make one of them disappear.

cdef inline uint64_t rotate(uint64_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (64 - bits))


cdef inline void sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]; v[1] = rotate(v[1], 13); v[1] ^= v[0]; v[0] = rotate(v[0], 32)
    v[2] += v[3]; v[3] = rotate(v[3], 16); v[3] ^= v[2]
    v[0] += v[3]; v[3] = rotate(v[3], 21); v[3] ^= v[0]
    v[2] += v[1]; v[1] = rotate(v[1], 17); v[1] ^= v[2]; v[2] = rotate(v[2], 32)


cdef inline void sip_hash(
    const uint8_t *at, int64_t length, uint64_t k0, uint64_t k1, uint64_t *low, uint64_t *high
) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t block = 0
    cdef int64_t left = length
    cdef int i
    v[0] = <uint64_t>0x736F6D6570736575 ^ k0
    v[1] = <uint64_t>0x646F72616E646F6D ^ k1 ^ 0xEE
    v[2] = <uint64_t>0x6C7967656E657261 ^ k0
    v[3] = <uint64_t>0x7465646279746573 ^ k1
    while left >= 8:
        memcpy(&block, at, 8)
        v[3] ^= block
        sip_round(v)
        sip_round(v)
        v[0] ^= block
        at += 8
        left -= 8
    block = <uint64_t>length << 56
    for i in range(<int>left):
        block |= <uint64_t>at[i] << (8 * i)
    v[3] ^= block
    sip_round(v)
    sip_round(v)
    v[0] ^= block
    v[2] ^= 0xEE
    for i in range(4):
        sip_round(v)
    low[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for i in range(4):
        sip_round(v)
    high[0] = v[0] ^ v[1] ^ v[2] ^ v[3]


def key_hash(const uint8_t[::1] key not None, bytes hash_key not None):
    """The hash that the map stores for a key; for tests against the published vectors."""
    cdef uint64_t low, high
    k0 = int.from_bytes(hash_key[:8], "little")
    k1 = int.from_bytes(hash_key[8:], "little")
    sip_hash(&key[0] if key.shape[0] else NULL, key.shape[0], k0, k1, &low, &high)
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


cdef class OffsetMap:
    """Key -> the last offset at which the key was seen, in a fixed amount of memory. Holds a
    128-bit keyed hash of each key, as Kafka's map holds an MD5, at most `capacity` of them.
    """

    cdef Slot *table
    cdef readonly int64_t slots
    cdef readonly int64_t capacity
    cdef int64_t entries
    cdef public int64_t latest_offset
    cdef uint64_t k0
    cdef uint64_t k1

    def __cinit__(self, *, memory_bytes, load_factor, hash_key):
        if len(hash_key) != 16:
            raise ValueError("the hash key has sixteen bytes")
        self.slots = memory_bytes // SLOT_BYTES
        self.capacity = int(self.slots * load_factor)
        if not 0 < self.capacity < self.slots:
            raise ValueError(f"{memory_bytes} bytes are too few for one key and a free slot")
        self.k0 = int.from_bytes(hash_key[:8], "little")
        self.k1 = int.from_bytes(hash_key[8:], "little")
        self.clear()

    def __dealloc__(self):
        free(self.table)

    def __len__(self):
        return self.entries

    def clear(self):
        # Fresh pages are zero until they are touched: cheaper than wiping.
        free(self.table)
        self.entries = 0
        self.latest_offset = -1
        self.table = <Slot *>calloc(self.slots, sizeof(Slot))
        if self.table == NULL:
            raise MemoryError

    def get(self, const uint8_t[::1] key not None):
        """-1 if the key is not in the map."""
        return self.find(&key[0] if key.shape[0] else NULL, key.shape[0]).offset_plus_one - 1

    cdef Slot *find(self, const uint8_t *key, int64_t length) noexcept nogil:
        """The key's slot, or the empty slot where it belongs. There is always an empty slot."""
        cdef uint64_t low, high
        sip_hash(key, length, self.k0, self.k1, &low, &high)
        cdef int64_t at = <int64_t>(high % <uint64_t>self.slots)
        cdef Slot *slot
        while True:
            slot = &self.table[at]
            if slot.offset_plus_one == 0:
                slot.hash_low = low
                slot.hash_high = high
                return slot
            if slot.hash_low == low and slot.hash_high == high:
                return slot
            at += 1
            if at == self.slots:
                at = 0


cdef object malformed(int64_t base_offset):
    return KafkaError(
        ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {base_offset} holds a malformed record"
    )


cdef enum LoopEnd:
    DONE
    FULL
    MALFORMED


cdef LoopEnd index_loop(
    OffsetMap offset_map,
    const uint8_t *at,
    const uint8_t *end,
    int32_t count,
    int64_t base_offset,
    int64_t start_offset,
) noexcept nogil:
    cdef RecordView record
    cdef Slot *slot
    cdef int64_t offset
    cdef int32_t i
    for i in range(count):
        at = read_record(at, end, &record)
        if at == NULL:
            return MALFORMED
        offset = base_offset + record.offset_delta
        if record.key_length < 0 or offset < start_offset:
            continue
        if offset_map.entries >= offset_map.capacity:
            return FULL
        slot = offset_map.find(record.key, record.key_length)
        if slot.offset_plus_one == 0:
            offset_map.entries += 1
        slot.offset_plus_one = offset + 1
        offset_map.latest_offset = offset
    return DONE


def index_records(
    OffsetMap offset_map not None,
    records,
    int32_t count,
    int64_t base_offset,
    int64_t start_offset,
):
    """Put the keys of records at or after `start_offset` into the map. Returns True if the map was
    full before the end; its `latest_offset` then says how far it got.
    """
    cdef Py_buffer view
    cdef LoopEnd loop_end
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    cdef const uint8_t *at = <const uint8_t *>view.buf
    cdef const uint8_t *end = at + view.len
    if view.len < RELEASE_BYTES:
        loop_end = index_loop(offset_map, at, end, count, base_offset, start_offset)
    else:
        with nogil:
            loop_end = index_loop(offset_map, at, end, count, base_offset, start_offset)
    PyBuffer_Release(&view)
    if loop_end == MALFORMED:
        raise malformed(base_offset)
    return loop_end == FULL


cdef struct Kept:
    int32_t count
    int64_t used_bytes
    int64_t timestamp_delta_max
    bint has_tombstone


cdef LoopEnd filter_loop(
    OffsetMap offset_map,
    const uint8_t *at,
    const uint8_t *end,
    int32_t count,
    int64_t base_offset,
    bint keep_tombstones,
    uint8_t *target,
    Kept *kept,
) noexcept nogil:
    cdef const uint8_t *run = at  # the beginning of the records not copied yet
    cdef const uint8_t *start
    cdef RecordView record
    cdef int64_t offset, found
    cdef int32_t i
    cdef bint keep
    kept.count = 0
    kept.used_bytes = 0
    kept.timestamp_delta_max = 0
    kept.has_tombstone = False
    for i in range(count):
        start = at
        at = read_record(at, end, &record)
        if at == NULL:
            return MALFORMED
        offset = base_offset + record.offset_delta
        if offset > offset_map.latest_offset:
            keep = True
        elif record.key_length < 0:
            keep = False
        else:
            found = offset_map.find(record.key, record.key_length).offset_plus_one - 1
            keep = offset >= found and (record.has_value or keep_tombstones)
        if keep:
            if kept.count == 0 or record.timestamp_delta > kept.timestamp_delta_max:
                kept.timestamp_delta_max = record.timestamp_delta
            kept.count += 1
            if not record.has_value:
                kept.has_tombstone = True
        else:
            memcpy(target + kept.used_bytes, run, start - run)
            kept.used_bytes += start - run
            run = at
    memcpy(target + kept.used_bytes, run, at - run)
    kept.used_bytes += at - run
    return DONE if at == end else MALFORMED


def filter_records(
    OffsetMap offset_map not None,
    records,
    int32_t count,
    int64_t base_offset,
    bint keep_tombstones,
):
    """(records kept, their bytes or None if all are kept, whether they include a tombstone, their
    largest timestamp delta). Records keep their encoding.
    """
    cdef Py_buffer view
    cdef bytes output
    cdef uint8_t *target
    cdef Kept kept
    cdef LoopEnd loop_end
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    cdef const uint8_t *at = <const uint8_t *>view.buf
    cdef const uint8_t *end = at + view.len
    try:
        output = PyBytes_FromStringAndSize(NULL, view.len)
        target = <uint8_t *>PyBytes_AS_STRING(output)
        if view.len < RELEASE_BYTES:
            loop_end = filter_loop(
                offset_map, at, end, count, base_offset, keep_tombstones, target, &kept
            )
        else:
            with nogil:
                loop_end = filter_loop(
                    offset_map, at, end, count, base_offset, keep_tombstones, target, &kept
                )
    finally:
        PyBuffer_Release(&view)
    if loop_end == MALFORMED:
        raise malformed(base_offset)
    content = None if kept.count == count else output[: kept.used_bytes]
    return kept.count, content, bool(kept.has_tombstone), kept.timestamp_delta_max


cdef int64_t rebase_loop(
    const uint8_t *at, const uint8_t *end, int32_t count, int64_t shift_ms, uint8_t *begin
) noexcept nogil:
    """Returns how many bytes were written to `begin`; -1 if a record is malformed."""
    cdef uint8_t *target = begin
    cdef uint8_t scratch[16]
    cdef RecordView record
    cdef int64_t delta, delta_size, rest_size
    cdef int32_t i
    for i in range(count):
        at = read_record(at, end, &record)
        if at == NULL:
            return -1
        delta = <int64_t>(<uint64_t>record.timestamp_delta + <uint64_t>shift_ms)
        delta_size = write_varint(scratch, delta) - scratch
        rest_size = record.end - record.after_timestamp
        target = write_varint(target, 1 + delta_size + rest_size)
        target[0] = record.after_length[0]
        memcpy(target + 1, scratch, delta_size)
        target += 1 + delta_size
        memcpy(target, record.after_timestamp, rest_size)
        target += rest_size
    return target - begin if at == end else -1


def rebase_timestamps(records, int32_t count, int64_t shift_ms):
    """The same records with `shift_ms` added to every timestamp delta."""
    cdef Py_buffer view
    cdef bytes output
    cdef uint8_t *target
    cdef int64_t used = -1
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    cdef const uint8_t *at = <const uint8_t *>view.buf
    cdef const uint8_t *end = at + view.len
    try:
        if 0 <= count <= view.len:
            # A delta grows by at most nine bytes, and the length field of its record by as many as
            # that needs.
            output = PyBytes_FromStringAndSize(NULL, view.len + 14 * <Py_ssize_t>count)
            target = <uint8_t *>PyBytes_AS_STRING(output)
            with nogil:
                used = rebase_loop(at, end, count, shift_ms, target)
    finally:
        PyBuffer_Release(&view)
    if used < 0:
        raise malformed(-1)
    return output[:used]
