"""From a record to a batch's bytes, in at most one call per record. `_batching_twin.py` is the
documented Python twin; a test keeps them equal.

Threads: users' threads append while the event loop's thread seals. No Python code may run between
the check of a batch and the last byte written to it, or the interpreter could switch threads.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_CheckExact
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

cdef enum:
    HEADER_BYTES = 61
    # A length in front and every varint at its longest: 5 + 1 + 10 + 5 + 5 + 5 + 5.
    RECORD_OVERHEAD = 36
    MANY_MAX = 4096


cdef inline uint32_t hash_of(const uint8_t* content, Py_ssize_t length) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t value = <uint32_t>0x9747B28C ^ <uint32_t>length
    cdef uint32_t k
    cdef Py_ssize_t at = 0
    while length - at >= 4:
        memcpy(&k, content + at, 4)
        k *= m
        k ^= k >> 24
        k *= m
        value *= m
        value ^= k
        at += 4
    if at < length:
        k = 0
        memcpy(&k, content + at, length - at)
        value ^= k
        value *= m
    value ^= value >> 13
    value *= m
    return value ^ (value >> 15)


def murmur2(bytes content not None):
    return hash_of(<const uint8_t*>PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))


def partitions_of_keys(offsets, content, Py_ssize_t start, Py_ssize_t rows, int32_t partition_count):
    cdef Py_buffer places, octets
    cdef const int32_t* at
    cdef Py_ssize_t row
    cdef bytearray found
    cdef int32_t* out
    if partition_count < 1 or start < 0 or rows < 0 or rows > INT32_MAX:
        raise ValueError("invalid number of partitions or rows")
    PyObject_GetBuffer(offsets, &places, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(content, &octets, PyBUF_SIMPLE)
        try:
            if places.len // 4 < start + rows + 1:
                raise ValueError("a column has fewer offsets than rows")
            at = (<const int32_t*>places.buf) + start
            found = PyByteArray_FromStringAndSize(NULL, rows * 4)
            out = <int32_t*>PyByteArray_AS_STRING(found)
            for row in range(rows):
                if at[row] < 0 or at[row + 1] < at[row] or at[row + 1] > octets.len:
                    raise ValueError("a column's offsets do not fit its bytes")
                out[row] = <int32_t>(
                    (hash_of((<const uint8_t*>octets.buf) + at[row], at[row + 1] - at[row]) & 0x7FFFFFFF)
                    % <uint32_t>partition_count
                )
            return found
        finally:
            PyBuffer_Release(&octets)
    finally:
        PyBuffer_Release(&places)


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int size_of(uint64_t raw) noexcept nogil:
    cdef int size = 1
    while raw >= 0x80:
        raw >>= 7
        size += 1
    return size


cdef inline uint8_t* put(uint8_t* at, uint64_t raw) noexcept nogil:
    while raw >= 0x80:
        at[0] = <uint8_t>(raw | 0x80)
        at += 1
        raw >>= 7
    at[0] = <uint8_t>raw
    return at + 1


cdef inline uint8_t* put_bytes(uint8_t* at, object content):
    cdef Py_ssize_t length
    if content is None:
        at[0] = 1
        return at + 1
    length = PyBytes_GET_SIZE(content)
    at = put(at, <uint64_t>length << 1)
    memcpy(at, PyBytes_AS_STRING(content), length)
    return at + length


cdef inline Py_ssize_t length_of(object content) noexcept:
    return 1 if content is None else size_of(<uint64_t>PyBytes_GET_SIZE(content) << 1) + PyBytes_GET_SIZE(content)


cdef inline bint is_plain(object content) noexcept:
    return content is None or PyBytes_CheckExact(content)


cdef inline bint is_number(object value) noexcept:
    """Whether the value is None or an int from 0 to 2^63-1."""
    cdef int overflow = 0
    if value is None:
        return True
    return PyLong_CheckExact(value) and PyLong_AsLongLongAndOverflow(value, &overflow) >= 0 and not overflow


cdef Py_ssize_t size_of_headers(tuple headers) except -2:
    """-1 unless the headers are pairs of str and bytes or None, which can be written directly."""
    cdef Py_ssize_t size = size_of(<uint64_t>len(headers) << 1), length = 0
    cdef object pair, name
    for pair in headers:
        if type(pair) is not tuple or len(<tuple>pair) != 2:
            return -1
        name = (<tuple>pair)[0]
        if not PyUnicode_CheckExact(name) or not is_plain((<tuple>pair)[1]):
            return -1
        PyUnicode_AsUTF8AndSize(name, &length)
        size += size_of(<uint64_t>length << 1) + length + length_of((<tuple>pair)[1])
    return size


cdef uint8_t* put_headers(uint8_t* at, tuple headers) except NULL:
    cdef Py_ssize_t length = 0
    cdef const char* name
    at = put(at, <uint64_t>len(headers) << 1)
    for pair in headers:
        name = PyUnicode_AsUTF8AndSize((<tuple>pair)[0], &length)
        at = put(at, <uint64_t>length << 1)
        memcpy(at, name, length)
        at = put_bytes(at + length, (<tuple>pair)[1])
    return at


cdef class Batch:
    cdef readonly object topic
    cdef readonly int32_t partition
    cdef readonly int32_t count
    cdef readonly bint is_open
    cdef readonly bint is_ready
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t held_bytes
    cdef public object outcome
    cdef public list parts
    cdef public list callbacks
    cdef public object waiter
    cdef bytearray body
    cdef Py_ssize_t size

    def __init__(self, topic, int32_t partition, Py_ssize_t capacity):
        self.topic = topic
        self.partition = partition
        self.body = PyByteArray_FromStringAndSize(NULL, max(capacity, HEADER_BYTES))
        memset(PyByteArray_AS_STRING(self.body), 0, HEADER_BYTES)
        self.size = HEADER_BYTES
        self.held_bytes = max(capacity, HEADER_BYTES)
        self.is_open = True

    @staticmethod
    def of_rows(topic, int32_t partition, bytearray body not None, tuple facts not None):
        cdef Batch batch = Batch.__new__(Batch)
        batch.topic = topic
        batch.partition = partition
        batch.body = body
        batch.size = batch.held_bytes = len(body)
        batch.count, batch.base_timestamp, batch.max_timestamp = facts
        batch.is_ready = True
        return batch

    @property
    def size_bytes(self):
        return self.size

    def seal(self):
        """Closes the batch for appends and returns its body, with room for the header in front."""
        self.is_open = False
        if len(self.body) != self.size:
            PyByteArray_Resize(self.body, self.size)
        return self.body

    def release(self):
        self.body = None

    cdef int write(
        self, int64_t timestamp, object key, object value, tuple headers, Py_ssize_t header_bytes
    ) except -1:
        """The caller has made sure that the record fits."""
        cdef uint8_t* at = <uint8_t*>PyByteArray_AS_STRING(self.body) + self.size
        cdef int64_t delta
        cdef uint64_t length
        if self.count == 0:
            self.base_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        delta = <int64_t>(<uint64_t>timestamp - <uint64_t>self.base_timestamp)
        length = (
            1 + size_of(zigzag(delta)) + size_of(zigzag(self.count)) + length_of(key) + length_of(value)
            + header_bytes
        )
        at = put(at, length << 1)
        at[0] = 0
        at = put(at + 1, zigzag(delta))
        at = put(at, zigzag(self.count))
        at = put_bytes(at, key)
        at = put_bytes(at, value)
        if headers is None:
            at[0] = 0
            at += 1
        else:
            at = put_headers(at, headers)
        self.size = at - <uint8_t*>PyByteArray_AS_STRING(self.body)
        self.count += 1
        return 0


@cython.no_gc
@cython.freelist(64)
cdef class Delivery:
    """The future result of sending one record."""
    cdef readonly Batch batch
    cdef readonly int32_t index
    cdef readonly int64_t timestamp

    def __init__(self, Batch batch not None, int32_t index, int64_t timestamp):
        self.batch = batch
        self.index = index
        self.timestamp = timestamp

    def done(self):
        """Returns whether the record was written or has failed."""
        return place_of(self.batch, self.index)[0].outcome is not None

    def exception(self, timeout=None):
        """Returns the error if the record failed, else None. Waits up to `timeout` seconds, like
        `result`.
        """
        place, index = place_of(self.batch, self.index)
        outcome = place.outcome
        if outcome is None:
            outcome = self.batch.waiter.wait(self, timeout)
            # It may have been split meanwhile.
            _, index = place_of(self.batch, self.index)
        return outcome.error_of(index)

    def result(self, timeout=None):
        """Returns where the record was written. Waits up to `timeout` seconds, and raises the
        record's error if it failed.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error
        place, index = place_of(self.batch, self.index)
        return place.outcome.metadata(place, index, self.timestamp)

    def add_callback(self, fn):
        """Calls `fn(delivery)` in the client's thread when the record is done, or at once if it
        already is.
        """
        cdef Batch place
        cdef list fresh = []
        cdef tuple entry
        place, index = place_of(self.batch, self.index)
        entry = (index, fn, self)
        # No Python code from here on until it is noted: the loop's thread may finish the batch.
        if place.outcome is None and place.parts is None:
            if place.callbacks is None:
                place.callbacks = fresh
            place.callbacks.append(entry)
        elif place.outcome is None:
            self.add_callback(fn)
        else:
            fn(self)

    def __await__(self):
        return self.batch.waiter.awaited(self).__await__()


cdef tuple place_of(Batch batch, int32_t index):
    """The batch that a record is in now, and its index there: batches can be split."""
    cdef Batch part
    while batch.parts is not None:
        for part in batch.parts:
            if index < part.count:
                batch = part
                break
            index -= part.count
        else:
            raise IndexError(index)
    return batch, index


def leaf_of(Batch batch not None, int32_t index):
    return place_of(batch, index)


cdef class TopicBuffers:
    cdef readonly object name
    cdef readonly int32_t partition_count
    cdef readonly bint hashes_keys
    cdef readonly bint is_sticky
    cdef public int32_t sticky
    cdef list open
    cdef Py_ssize_t sticky_bytes

    def __init__(self, name, int32_t partition_count, bint hashes_keys, bint is_sticky):
        self.name = name
        self.hashes_keys = hashes_keys
        self.is_sticky = is_sticky
        self.open = []
        self.sticky = 0
        self.resize(partition_count)

    def resize(self, int32_t partition_count):
        if partition_count < 1:
            raise ValueError("a topic has at least one partition")
        self.partition_count = partition_count
        while len(self.open) < partition_count:
            self.open.append(None)
        if self.sticky >= partition_count:
            self.sticky = 0


cdef class Appender:
    cdef dict topics
    cdef list begun
    cdef Py_ssize_t batch_bytes, growth_bytes, record_bytes_max
    cdef public int64_t room
    cdef public bint is_closed
    cdef bint is_woken
    cdef object now_ms, wake, choose, waiter

    def __init__(self, limits, hooks):
        self.topics = {}
        self.begun = []
        self.batch_bytes, self.growth_bytes, self.record_bytes_max, self.room = limits
        # The lock is for the twin; here the interpreter lock is enough.
        self.now_ms, self.wake, self.choose, self.waiter, _ = hooks

    def add_topic(self, TopicBuffers topic not None):
        self.topics[topic.name] = topic

    def topic(self, name):
        return self.topics.get(name)

    def forget_topic(self, name):
        self.topics.pop(name, None)

    def take_begun(self):
        """The batches that were begun since the last call."""
        cdef list begun = self.begun
        self.begun = []
        self.is_woken = False
        return begun

    cdef int call(self) except -1:
        if not self.is_woken:
            self.is_woken = True
            self.wake()
        return 0

    cdef Batch begin(self, TopicBuffers topic, int32_t partition, Py_ssize_t needed):
        """Takes room for a new batch, or gives None. Making it may run Python code (the garbage
        collector), so another thread may have begun one meanwhile: the caller checks again.
        """
        cdef Py_ssize_t capacity = max(self.batch_bytes, needed + HEADER_BYTES)
        cdef Batch fresh, current
        if self.room < capacity:
            return None
        fresh = Batch(topic.name, partition, capacity)
        fresh.waiter = self.waiter
        current = topic.open[partition]
        if self.room < capacity:
            return None
        if current is not None and current.is_open and current.size + needed <= self.growth_bytes:
            return current
        self.room -= capacity
        topic.open[partition] = fresh
        self.begun.append(fresh)
        return fresh

    cdef bint grow(self, Batch batch, Py_ssize_t needed) except -1:
        cdef Py_ssize_t capacity = len(batch.body), wanted
        if batch.size + needed <= capacity:
            return True
        wanted = max(2 * capacity, batch.size + needed)
        if self.room < wanted - capacity:
            return False
        PyByteArray_Resize(batch.body, wanted)
        self.room -= wanted - capacity
        batch.held_bytes = wanted
        return True

    cdef Delivery add(
        self, TopicBuffers topic, object key, object value, tuple headers, object partition, int64_t timestamp
    ):
        """None if the caller must take the slower path."""
        cdef Py_ssize_t needed, header_bytes = 1
        cdef int32_t number
        cdef Batch batch
        cdef Delivery delivery
        cdef bint is_sticky = False
        if self.is_closed or not is_plain(value) or not is_plain(key):
            return None
        if headers is not None:
            header_bytes = size_of_headers(headers)
            if header_bytes < 0:
                return None
        needed = RECORD_OVERHEAD + header_bytes
        if key is not None:
            needed += PyBytes_GET_SIZE(key)
        if value is not None:
            needed += PyBytes_GET_SIZE(value)
        if needed > self.record_bytes_max:
            return None
        if partition is not None:
            if partition < 0 or partition >= topic.partition_count:
                return None
            number = partition
        elif key is not None and topic.hashes_keys:
            number = <int32_t>(
                (hash_of(<const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)) & 0x7FFFFFFF)
                % <uint32_t>topic.partition_count
            )
        elif topic.is_sticky:
            if topic.sticky_bytes >= self.batch_bytes and topic.partition_count > 1:
                topic.sticky_bytes = 0
                topic.sticky = self.choose(topic)
            number = topic.sticky
            is_sticky = True
        else:
            return None
        delivery = Delivery.__new__(Delivery)
        while True:
            batch = topic.open[number]
            if batch is None or not batch.is_open or (
                batch.size + needed > self.growth_bytes and batch.count
            ):
                batch = self.begin(topic, number, needed)
                if batch is None:
                    return None
                continue
            if not self.grow(batch, needed):
                return None
            break
        delivery.batch = batch
        delivery.index = batch.count
        delivery.timestamp = timestamp
        batch.write(timestamp, key, value, headers, header_bytes)
        if is_sticky:
            topic.sticky_bytes += needed
        if batch.count == 1:
            self.call()
        if not batch.is_ready and batch.size >= self.batch_bytes:
            batch.is_ready = True
            self.call()
        return delivery

    def append(self, name, key, value, partition, timestamp, headers):
        """The record's Delivery, or None if the caller must take the slower path: the topic is
        unknown, memory is full, the record is too large, its parts are not bytes, or another
        partitioner chooses the partition.
        """
        cdef object found
        cdef int64_t time
        cdef tuple heads = None
        if not PyUnicode_CheckExact(name) or not is_number(partition) or not is_number(timestamp):
            return None
        found = self.topics.get(name)
        if found is None:
            return None
        if type(headers) is tuple:
            heads = <tuple>headers if len(<tuple>headers) else None
        elif type(headers) is list:
            heads = tuple(<list>headers)
        elif headers is not None:
            return None
        # Python code may run here, and nowhere below until the record is written.
        time = self.now_ms() if timestamp is None else timestamp
        return self.add(<TopicBuffers>found, key, value, heads, partition, time)

    @cython.boundscheck(True)
    def append_many(self, name, list values not None, list keys, options, Py_ssize_t start, list pieces not None):
        """Appends values from `start` on, as many as fit and at most a few thousand, and returns
        their number. `pieces` gets the (batch, first, count) of each batch. `options`: partition
        and timestamp, or None.
        """
        cdef object found = self.topics.get(name), key = None
        cdef TopicBuffers topic
        cdef Delivery delivery
        cdef Batch last = None
        cdef Py_ssize_t row, stop = min(<Py_ssize_t>len(values), start + MANY_MAX)
        cdef int32_t first = 0, count = 0
        cdef int64_t time
        if found is None or start < 0:
            return 0
        if keys is not None and len(keys) != len(values):
            raise ValueError(f"{len(keys)} keys for {len(values)} values")
        topic = <TopicBuffers>found
        partition, timestamp = options
        time = self.now_ms() if timestamp is None else timestamp
        row = start
        while row < stop:
            if keys is not None:
                key = keys[row]
            delivery = self.add(topic, key, values[row], None, partition, time)
            if delivery is None:
                break
            if delivery.batch is not last or delivery.index != first + count:
                if last is not None:
                    pieces.append((last, first, count))
                last = delivery.batch
                first = delivery.index
                count = 0
            count += 1
            row += 1
        if last is not None:
            pieces.append((last, first, count))
        return row - start
