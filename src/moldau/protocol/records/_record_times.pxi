# Finds the first record at or after a time without creating record objects. Part of _records.pyx,
# in a separate file; the twin is _record_times_twin.py.


def first_record_at(
    buffer, tuple bounds, int64_t count, tuple bases, int64_t timestamp_min, int64_t offset_min
):
    cdef _View view = _View(buffer)
    cdef const uint8_t* p = view.bytes
    cdef Py_ssize_t position = bounds[0], end = bounds[1]
    cdef int64_t base_offset = bases[0], base_timestamp = bases[1], append_time = 0
    cdef bint has_append_time = bases[2] is not None
    cdef int64_t index, offset = 0, timestamp = 0
    cdef Parsed record
    cdef int problem = 0
    cdef bint is_found = False
    check_bounds(view, position, end, count)
    if has_append_time:
        append_time = bases[2]
    with nogil:
        for index in range(count):
            problem = parse_record(p, position, end, &record)
            if problem:
                break
            position = record.next
            timestamp = append_time
            if not has_append_time:
                timestamp = wrapping_sum(base_timestamp, record.timestamp_delta)
            offset = wrapping_sum(base_offset, record.offset_delta)
            if timestamp >= timestamp_min and offset >= offset_min:
                is_found = True
                break
    if problem:
        raise invalid(PROBLEMS[problem])
    return (offset, timestamp) if is_found else None
