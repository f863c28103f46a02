# Consumer records, created on demand. Part of _records.pyx, in a separate file; the twin is
# _record_cursor_twin.py.

cimport cython


@cython.no_gc
@cython.freelist(512)
@cython.final
cdef class ConsumerRecord:
    # No garbage collection: bytes, text and tuples of them form no cycles, and a record's fields
    # never change. A collector that looked at every record would take half of the time.
    cdef readonly str topic
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp
    cdef readonly int32_t partition
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t timestamp_type

    def __init__(
        self, str topic, int32_t partition, int64_t offset, int64_t timestamp, key=None, value=None,
        tuple headers=(), *, int32_t leader_epoch=-1, int32_t timestamp_type=0,
    ):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch
        self.timestamp_type = timestamp_type

    def __repr__(self):
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, "
            f"offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )

    def __reduce__(self):
        return _restored_record, (
            self.topic, self.partition, self.offset, self.timestamp, self.key, self.value,
            self.headers, self.leader_epoch, self.timestamp_type,
        )


def _restored_record(topic, partition, offset, timestamp, key, value, headers, epoch, kind):
    return ConsumerRecord(
        topic, partition, offset, timestamp, key, value, headers,
        leader_epoch=epoch, timestamp_type=kind,
    )


@cython.final
cdef class RecordCursor:
    cdef _View view
    cdef Py_ssize_t position
    cdef Py_ssize_t end
    cdef readonly int64_t left
    cdef int64_t base_offset
    cdef int64_t base_timestamp
    cdef bint has_append_time
    cdef int64_t append_time
    cdef int64_t start_offset
    cdef str topic
    cdef int32_t partition
    cdef int32_t leader_epoch
    cdef object read_key
    cdef object read_value
    cdef readonly int64_t next_offset

    def __cinit__(self, buffer, tuple bounds, int64_t count, tuple bases, tuple origin, tuple readers):
        self.view = _View(buffer)
        self.position, self.end = bounds
        self.left = count
        self.base_offset, self.base_timestamp, append_time = bases
        self.has_append_time = append_time is not None
        self.append_time = append_time or 0
        self.topic, self.partition, self.leader_epoch, self.start_offset = origin
        self.read_key, self.read_value = readers
        self.next_offset = self.start_offset
        check_bounds(self.view, self.position, self.end, count)

    def take(self, list into, Py_ssize_t count):
        cdef const uint8_t* p = self.view.bytes
        cdef Parsed record
        cdef int problem
        cdef int64_t offset
        cdef Py_ssize_t taken = 0
        cdef ConsumerRecord made
        while taken < count and self.left:
            problem = parse_record(p, self.position, self.end, &record)
            if problem:
                if taken:
                    return taken
                raise invalid(PROBLEMS[problem])
            offset = wrapping_sum(self.base_offset, record.offset_delta)
            if offset >= self.start_offset:
                try:
                    made = self.make(p, offset, &record)
                except Exception:
                    # The records before it are good; the next call begins with it and raises.
                    if taken:
                        return taken
                    raise
                into.append(made)
                taken += 1
                self.next_offset = wrapping_sum(offset, 1)
            self.position = record.next
            self.left -= 1
        if not self.left and self.position != self.end:
            raise invalid("bytes are left after the last record")
        return taken

    cdef ConsumerRecord make(self, const uint8_t* p, int64_t offset, Parsed* record):
        cdef ConsumerRecord made = ConsumerRecord.__new__(ConsumerRecord)
        cdef object content
        made.topic = self.topic
        made.partition = self.partition
        made.leader_epoch = self.leader_epoch
        made.offset = offset
        if self.has_append_time:
            made.timestamp = self.append_time
            made.timestamp_type = 1
        else:
            made.timestamp = wrapping_sum(self.base_timestamp, record.timestamp_delta)
        if record.key_length >= 0:
            content = PyBytes_FromStringAndSize(<char*>p + record.key_start, record.key_length)
            made.key = content if self.read_key is None else self.read_key(content)
        if record.value_length >= 0:
            content = PyBytes_FromStringAndSize(<char*>p + record.value_start, record.value_length)
            made.value = content if self.read_value is None else self.read_value(content)
        made.headers = () if record.header_count == 0 else read_headers(p, record)
        return made
