# Conversion between records and columns. Part of _records.pyx, in a separate file because of its
# size; the twin is _record_columns_twin.py.

cdef inline int64_t microseconds(int64_t milliseconds) noexcept nogil:
    if milliseconds > INT64_MAX // 1000:
        return INT64_MAX
    if milliseconds < -(INT64_MAX // 1000):
        return INT64_MIN
    return milliseconds * 1000


cdef class Bits:
    """Validity bits; each byte is cleared when it is first reached."""
    cdef Growing store
    cdef Py_ssize_t count
    cdef Py_ssize_t nulls

    def __cinit__(self):
        self.store = Growing(64)

    cdef inline int reserve(self, Py_ssize_t more) except -1:
        return self.store.reserve((more >> 3) + 2)

    cdef inline void append(self, bint valid) noexcept:
        """Call reserve() first."""
        cdef Growing store = self.store
        if not self.count & 7:
            store.bytes[store.used] = 0
            store.used += 1
        if valid:
            store.bytes[self.count >> 3] |= <uint8_t>(1 << (self.count & 7))
        else:
            self.nulls += 1
        self.count += 1

    cdef finish(self):
        return self.store.finish() if self.nulls else None


cdef class Binaries:
    """A binary column that grows."""
    cdef Growing offsets
    cdef Growing content
    cdef Bits validity

    def __cinit__(self):
        self.offsets = Growing(4096)
        self.content = Growing(4096)
        self.validity = Bits()
        (<int32_t*>self.offsets.bytes)[0] = 0
        self.offsets.used = 4

    cdef inline int reserve(self, Py_ssize_t more) except -1:
        self.offsets.reserve(4 * more)
        self.validity.reserve(more)
        return 0

    cdef inline int append(self, const uint8_t* content, int32_t length) except -1:
        """Call reserve() first. A negative length is null."""
        self.validity.append(length >= 0)
        if length > 0:
            if length > INT32_MAX - self.content.used:
                raise MoldauError(COLUMN_FULL)
            self.content.reserve(length)
            self.content.write(content, length)
        (<int32_t*>(self.offsets.bytes + self.offsets.used))[0] = <int32_t>self.content.used
        self.offsets.used += 4
        return 0

    cdef finish(self):
        cdef Py_ssize_t nulls = self.validity.nulls
        return BinaryColumn(
            self.offsets.finish(), self.content.finish(), self.validity.finish(), nulls
        )


cdef class ColumnSink:
    cdef Binaries key, value, names, contents
    cdef Growing offsets, timestamps, types, lists
    cdef Bits has_headers
    cdef Py_ssize_t count
    cdef bint is_finished

    def __cinit__(self, bint keys=True, bint values=True, bint headers=True):
        self.key = Binaries() if keys else None
        self.value = Binaries() if values else None
        self.offsets = Growing(4096)
        self.timestamps = Growing(4096)
        self.types = Growing(4096)
        self.count = 0
        if headers:
            self.names = Binaries()
            self.contents = Binaries()
            self.has_headers = Bits()
            self.lists = Growing(4096)
            (<int32_t*>self.lists.bytes)[0] = 0
            self.lists.used = 4

    cdef int reserve(self, Py_ssize_t more) except -1:
        self.offsets.reserve(8 * more)
        self.timestamps.reserve(8 * more)
        self.types.reserve(4 * more)
        if self.key is not None:
            self.key.reserve(more)
        if self.value is not None:
            self.value.reserve(more)
        if self.lists is not None:
            self.lists.reserve(4 * more)
            self.has_headers.reserve(more)
        return 0

    def expect(self, Py_ssize_t rows, Py_ssize_t size_bytes):
        self.check_open()
        if rows < 0 or size_bytes < 0 or rows > size_bytes:
            raise ValueError(f"{rows} rows in {size_bytes} bytes")
        self.reserve(rows)
        if self.value is not None:
            self.value.content.reserve(size_bytes)

    cdef int append_name(self, const uint8_t* name, int32_t length) except -1:
        """Arrow strings must be UTF-8; a producer may send any bytes as a header's name."""
        cdef int32_t index
        cdef Py_ssize_t size
        cdef const char* repaired
        for index in range(length):
            if name[index] & 0x80:
                text = PyUnicode_DecodeUTF8(<char*>name, length, "replace")
                repaired = PyUnicode_AsUTF8AndSize(text, &size)
                if size > INT32_MAX:
                    raise MoldauError(COLUMN_FULL)
                self.names.append(<const uint8_t*>repaired, <int32_t>size)
                return 0
        self.names.append(name, length)
        return 0

    cdef int append_headers(self, const uint8_t* p, Parsed* record) except -1:
        cdef Py_ssize_t position = record.headers_start
        cdef int32_t index, length = 0
        self.has_headers.append(record.header_count > 0)
        if record.header_count:
            self.names.reserve(record.header_count)
            self.contents.reserve(record.header_count)
        for index in range(record.header_count):
            position = again(read_bytes(p, position, record.next, &length, &record.odd_nulls))
            self.append_name(p + position, max(length, 0))
            position = again(read_bytes(p, end_of(position, length), record.next, &length, &record.odd_nulls))
            self.contents.append(p + position, length)
            position = end_of(position, length)
        (<int32_t*>(self.lists.bytes + self.lists.used))[0] = <int32_t>(self.names.offsets.used // 4 - 1)
        self.lists.used += 4
        return 0

    def append(self, buffer, tuple bounds, Py_ssize_t count, tuple base, tuple wanted):
        cdef _View view = _View(buffer)
        cdef const uint8_t* p = view.bytes
        cdef Py_ssize_t position = bounds[0], end = bounds[1], index, before = self.count
        cdef int64_t base_offset = base[0], base_timestamp = base[1], offset, stamp = 0
        cdef int64_t first = wanted[0], stop = wanted[1]
        cdef bint stamped = base[2] is not None
        cdef Parsed record
        cdef int problem
        cdef Binaries key = self.key, value = self.value
        cdef bint headers = self.lists is not None
        self.check_open()
        check_bounds(view, position, end, count)
        self.reserve(count)
        if stamped:
            stamp = microseconds(base[2])
        for index in range(count):
            problem = parse_record(p, position, end, &record)
            if problem:
                raise invalid(PROBLEMS[problem])
            position = record.next
            offset = wrapping_sum(base_offset, record.offset_delta)
            if offset < first or offset >= stop:
                continue
            if key is not None:
                key.append(p + record.key_start, record.key_length)
            if value is not None:
                value.append(p + record.value_start, record.value_length)
            if headers:
                self.append_headers(p, &record)
            if not stamped:
                stamp = microseconds(wrapping_sum(base_timestamp, record.timestamp_delta))
            (<int64_t*>(self.offsets.bytes + self.offsets.used))[0] = offset
            self.offsets.used += 8
            (<int64_t*>(self.timestamps.bytes + self.timestamps.used))[0] = stamp
            self.timestamps.used += 8
            (<int32_t*>(self.types.bytes + self.types.used))[0] = stamped
            self.types.used += 4
            self.count += 1
        if position != end:
            raise invalid("bytes are left after the last record")
        return self.count - before

    cdef int check_open(self) except -1:
        """After finish() the buffers belong to the result."""
        if self.is_finished:
            raise ValueError(FINISHED)
        return 0

    def finish(self):
        cdef Py_ssize_t nulls
        self.check_open()
        self.is_finished = True
        headers = None
        if self.lists is not None:
            nulls = self.has_headers.nulls
            headers = HeaderColumns(
                self.lists.finish(), self.has_headers.finish(), self.names.finish(),
                self.contents.finish(), nulls,
            )
        return DecodedColumns(
            self.count,
            None if self.key is None else self.key.finish(),
            None if self.value is None else self.value.finish(),
            headers,
            self.offsets.finish(), self.timestamps.finish(), self.types.finish(),
        )


cdef int check_lengths(_View offsets, Py_ssize_t start, Py_ssize_t count) except -1:
    """Compares differences, not sums: differences cannot overflow."""
    if start < 0 or count < 0 or offsets.length // 4 - 1 - start < count:
        raise ValueError("a column has fewer offsets than rows")
    return 0


cdef int check_validity(_View validity, Py_ssize_t start, Py_ssize_t count) except -1:
    """Call check_lengths() first."""
    if validity.length < (start + count + 7) // 8:
        raise ValueError("a column has fewer validity bits than rows")
    return 0


@cython.final
cdef class Binary:
    """A binary column to read from. Its offsets are checked before each use."""
    cdef _View offsets_view, content_view, validity_view
    cdef const int32_t* offsets
    cdef const uint8_t* validity
    cdef Py_ssize_t start, count

    def __cinit__(self, column, Py_ssize_t count):
        self.offsets_view = _View(column.offsets)
        self.content_view = _View(column.content)
        self.offsets = <const int32_t*>self.offsets_view.bytes
        self.start = column.start
        self.count = count
        check_lengths(self.offsets_view, self.start, count)
        if column.validity is not None:
            self.validity_view = _View(column.validity)
            self.validity = self.validity_view.bytes
            check_validity(self.validity_view, self.start, count)

    cdef Py_ssize_t bytes_from(self, Py_ssize_t row) noexcept:
        """The number of bytes from a row on, if the offsets are valid."""
        return <Py_ssize_t>self.offsets[self.start + self.count] - <Py_ssize_t>self.offsets[self.start + row]

    cdef inline Py_ssize_t get(self, Py_ssize_t row, const uint8_t** content) except -2:
        """The length, -1 for null."""
        cdef Py_ssize_t index = self.start + row
        cdef int32_t first, stop
        if self.validity is not NULL and not self.validity[index >> 3] >> (index & 7) & 1:
            return -1
        first = self.offsets[index]
        stop = self.offsets[index + 1]
        if first < 0 or stop < first or stop > self.content_view.length:
            raise ValueError("a column's offsets do not fit its bytes")
        content[0] = self.content_view.bytes + first
        return stop - first


@cython.final
cdef class RowHeaders:
    """The headers of rows to read from."""
    cdef _View offsets_view, validity_view
    cdef const int32_t* offsets
    cdef Py_ssize_t start
    cdef Binary names, contents

    def __cinit__(self, columns, Py_ssize_t count):
        self.offsets_view = _View(columns.offsets)
        self.offsets = <const int32_t*>self.offsets_view.bytes
        self.start = columns.start
        check_lengths(self.offsets_view, self.start, count)
        if columns.validity is not None:
            self.validity_view = _View(columns.validity)
            check_validity(self.validity_view, self.start, count)
        self.names = Binary(columns.names, len(columns.names.offsets) // 4 - 1 - columns.names.start)
        self.contents = Binary(
            columns.values, len(columns.values.offsets) // 4 - 1 - columns.values.start
        )

    cdef int get(self, Py_ssize_t row, Py_ssize_t* first, Py_ssize_t* stop) except -1:
        cdef Py_ssize_t index = self.start + row
        first[0] = self.offsets[index]
        stop[0] = self.offsets[index + 1]
        if self.validity_view is not None:
            if not self.validity_view.bytes[index >> 3] >> (index & 7) & 1:
                stop[0] = first[0]
        if first[0] < 0 or stop[0] < first[0] or stop[0] > min(self.names.count, self.contents.count):
            raise ValueError("a column's offsets do not fit its rows")
        return 0

    cdef Py_ssize_t size(self, Py_ssize_t row) except -1:
        """Bytes of the header count and the headers."""
        cdef Py_ssize_t first = 0, stop = 0, index, length, size
        cdef const uint8_t* content = NULL
        self.get(row, &first, &stop)
        size = size_of(zigzag(stop - first))
        for index in range(first, stop):
            length = self.names.get(index, &content)
            if length < 0:
                raise ValueError("a header has no name")
            size += size_of(zigzag(length)) + length
            length = self.contents.get(index, &content)
            size += size_of(zigzag(length)) + max(length, 0)
        return size

    cdef uint8_t* write(self, Py_ssize_t row, uint8_t* at) except NULL:
        cdef Py_ssize_t first = 0, stop = 0, index
        self.get(row, &first, &stop)
        at = write_varint(at, zigzag(stop - first))
        for index in range(first, stop):
            at = write_cell(self.names, index, at)
            at = write_cell(self.contents, index, at)
        return at


cdef inline uint8_t* write_cell(Binary column, Py_ssize_t row, uint8_t* at) except NULL:
    cdef const uint8_t* content = NULL
    cdef Py_ssize_t length = -1
    if column is not None:
        length = column.get(row, &content)
    at = write_varint(at, zigzag(length))
    if length > 0:
        memcpy(at, content, length)
        at += length
    return at


cdef inline Py_ssize_t size_of_cell(Py_ssize_t length) noexcept nogil:
    return 1 if length < 0 else size_of(<uint64_t>length << 1) + length


cdef inline uint8_t* put_cell(uint8_t* at, const uint8_t* content, Py_ssize_t length) noexcept nogil:
    if length < 0:
        at[0] = 1
        return at + 1
    at = write_varint(at, <uint64_t>length << 1)
    memcpy(at, content, length)
    return at + length


@cython.final
cdef class RowEncoder:
    """Encodes rows into batch bodies. Every cell is looked up once, checked, and copied."""
    cdef Binary key, value
    cdef RowHeaders headers
    cdef _View times_view
    cdef const int64_t* times
    cdef int64_t default_timestamp
    cdef Py_ssize_t count
    cdef bytearray body
    cdef Py_ssize_t capacity

    def __cinit__(self, columns, int64_t default_timestamp):
        self.count = columns.rows
        self.default_timestamp = default_timestamp
        if columns.key is not None:
            self.key = Binary(columns.key, self.count)
        if columns.value is not None:
            self.value = Binary(columns.value, self.count)
        if columns.headers is not None:
            self.headers = RowHeaders(columns.headers, self.count)
        if columns.timestamps_ms is not None:
            self.times_view = _View(columns.timestamps_ms)
            start = columns.timestamps_start
            if start < 0 or self.count < 0 or self.times_view.length // 8 - start < self.count:
                raise ValueError("a column has fewer timestamps than rows")
            self.times = (<const int64_t*>self.times_view.bytes) + <Py_ssize_t>start

    cdef inline int64_t time(self, Py_ssize_t row) noexcept:
        return self.default_timestamp if self.times is NULL else self.times[row]

    cdef int begin(self, Py_ssize_t first_row, Py_ssize_t reserved, Py_ssize_t body_bytes_max) except -1:
        """Reserves the sizes that the columns claim, or a full body; headers may need more."""
        cdef Py_ssize_t rows = self.count - first_row, likely = 0
        if self.key is not None:
            likely += self.key.bytes_from(first_row)
        if self.value is not None:
            likely += self.value.bytes_from(first_row)
        if rows < body_bytes_max // 24:
            likely += 24 * rows
        else:
            likely = body_bytes_max
        self.capacity = reserved + max(min(likely, body_bytes_max), 0)
        self.body = PyByteArray_FromStringAndSize(NULL, self.capacity)
        memset(PyByteArray_AS_STRING(self.body), 0, reserved)
        return 0

    cdef int make_room(self, Py_ssize_t wanted) except -1:
        self.capacity = max(wanted, self.capacity + self.capacity // 2)
        PyByteArray_Resize(self.body, self.capacity)
        return 0

    cdef Py_ssize_t write(
        self, Py_ssize_t row, Py_ssize_t position, int64_t delta, int64_t time_delta, Py_ssize_t end_max
    ) except -1:
        """The position after the record; 0 if it would end after `end_max`."""
        cdef const uint8_t* key = NULL
        cdef const uint8_t* value = NULL
        cdef Py_ssize_t key_length = -1, value_length = -1, size, end
        cdef uint8_t* at
        if self.key is not None:
            key_length = self.key.get(row, &key)
        if self.value is not None:
            value_length = self.value.get(row, &value)
        size = 1 + size_of(zigzag(time_delta)) + size_of(zigzag(delta))
        size += size_of_cell(key_length) + size_of_cell(value_length)
        size += 1 if self.headers is None else self.headers.size(row)
        if size > INT32_MAX:
            raise ValueError("a record is larger than 2 GiB")
        end = position + size_of(zigzag(size)) + size
        if end > end_max:
            return 0
        if end > self.capacity:
            self.make_room(end)
        at = <uint8_t*>PyByteArray_AS_STRING(self.body) + position
        at = write_varint(at, zigzag(size))
        at[0] = 0
        at = write_varint(at + 1, zigzag(time_delta))
        at = write_varint(at, zigzag(delta))
        at = put_cell(at, key, key_length)
        at = put_cell(at, value, value_length)
        if self.headers is None:
            at[0] = 0
        else:
            self.headers.write(row, at)
        return end


def encode_columns(
    columns, Py_ssize_t first_row, int64_t default_timestamp, Py_ssize_t body_bytes_max,
    Py_ssize_t reserved_bytes,
):
    cdef RowEncoder rows = RowEncoder(columns, default_timestamp)
    cdef Py_ssize_t row, position = reserved_bytes, end
    cdef int64_t base, latest, time
    if not 0 <= first_row < rows.count:
        raise ValueError(f"row {first_row} of {rows.count}")
    base = latest = rows.time(first_row)
    rows.begin(first_row, reserved_bytes, body_bytes_max)
    row = first_row
    while row < rows.count and row - first_row < INT32_MAX:
        time = rows.time(row)
        end = rows.write(
            row, position, row - first_row, <int64_t>(<uint64_t>time - <uint64_t>base),
            # The first record is always added, however large it is.
            reserved_bytes + body_bytes_max if row > first_row else PY_SSIZE_T_MAX,
        )
        if end == 0:
            break
        position = end
        latest = max(latest, time)
        row += 1
    PyByteArray_Resize(rows.body, position)
    return EncodedRows(rows.body, row - first_row, base, latest)
