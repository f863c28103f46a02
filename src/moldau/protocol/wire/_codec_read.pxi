# The reading half of _codec.pyx. Input is untrusted: every read is checked against the end of the
# buffer first, and nothing is allocated that the remaining bytes could not fill.

cdef struct Source:
    const uint8_t *bytes
    Py_ssize_t position
    Py_ssize_t end
    Py_ssize_t elements_left
    Py_ssize_t budget
    int until_pause
    PyObject *owner      # borrowed: the object that owns the bytes
    PyObject *view       # owned once made: the memoryview that `records` fields are cut from
    PyObject *label      # borrowed


cdef int malformed(Source *source, object name, object problem) except -1:
    raise MalformedRequestError(f"{<object>source.label}: {name}: {problem}")


cdef inline Py_ssize_t left(Source *source) noexcept:
    return source.end - source.position


cdef int too_short(Source *source, object name, Py_ssize_t size) except -1:
    return malformed(source, name, f"needs {size} bytes, {left(source)} are left")


cdef inline const uint8_t *take(Source *source, Op *op, Py_ssize_t size) except NULL:
    """The next bytes; `size` is not negative."""
    cdef const uint8_t *start = source.bytes + source.position
    if size > source.end - source.position:
        too_short(source, <object>op.name, size)
    source.position += size
    return start


cdef inline uint16_t load16(const uint8_t *start) noexcept:
    return <uint16_t>((<uint16_t>start[0] << 8) | start[1])


cdef inline uint32_t load32(const uint8_t *start) noexcept:
    return (
        (<uint32_t>start[0] << 24) | (<uint32_t>start[1] << 16) | (<uint32_t>start[2] << 8) | start[3]
    )


cdef inline uint64_t load64(const uint8_t *start) noexcept:
    return (<uint64_t>load32(start) << 32) | load32(start + 4)


cdef Py_ssize_t long_varint(Source *source, object name) except -1:
    cdef uint64_t value = 0
    cdef uint8_t byte
    cdef int shift
    for shift in range(0, 35, 7):
        if left(source) < 1:
            too_short(source, name, 1)
        byte = source.bytes[source.position]
        source.position += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            if value > <uint64_t>LENGTH_MAX:
                malformed(source, name, "varint of more than 31 bits")
            return <Py_ssize_t>value
    return malformed(source, name, "varint of more than 5 bytes")


cdef inline Py_ssize_t varint(Source *source, object name) except -1:
    cdef uint8_t byte
    if source.position < source.end:
        byte = source.bytes[source.position]
        if byte < 0x80:
            source.position += 1
            return byte
    return long_varint(source, name)


cdef inline Py_ssize_t length_of(Source *source, Op *op, bint is_short) except -2:
    """Of a string, bytes or an array; -1 is null."""
    cdef Py_ssize_t size
    if op.is_compact:
        return varint(source, <object>op.name) - 1
    if is_short:
        size = <int16_t>load16(take(source, op, 2))
    else:
        size = <int32_t>load32(take(source, op, 4))
    if size < -1:
        malformed(source, <object>op.name, f"negative length {size}")
    return size


cdef object read_struct(Program program, Source *source):
    cdef object struct = allocate(program)
    cdef Op *op = program.ops
    cdef Op *end = op + program.step_count
    while op < end:
        slot_of(struct, op)[0] = read_field(op, source, False)
        op += 1
    if program.is_flexible:
        read_tags(program, struct, source)
    op = program.ops + program.tagged_end
    end = program.ops + program.op_count
    while op < end:
        slot_of(struct, op)[0] = new_default(op)
        op += 1
    return struct


cdef PyObject *read_field(Op *op, Source *source, bint is_tagged) except NULL:
    """A new reference."""
    cdef bint is_present
    if op.is_array:
        return read_array(op, source)
    if op.kind == STRUCT and op.is_nullable:
        if is_tagged:
            is_present = varint(source, <object>op.name) > 0
        else:
            is_present = take(source, op, 1)[0] < 0x80
        if not is_present:
            Py_INCREF(None)
            return Py_None
    return read_value(op, source, op.is_nullable)


cdef PyObject *read_array(Op *op, Source *source) except NULL:
    cdef Py_ssize_t index
    cdef Py_ssize_t count = length_of(source, op, False)
    cdef object items
    if count < 0:
        if not op.is_nullable:
            malformed(source, <object>op.name, "null is not allowed")
        Py_INCREF(None)
        return Py_None
    if count > left(source) // op.element_min_bytes:
        malformed(
            source, <object>op.name, f"{count} elements cannot fit in {left(source)} bytes"
        )
    source.elements_left -= count
    if source.elements_left < 0:
        malformed(
            source, <object>op.name, f"more than {source.budget} elements in one message"
        )
    items = new_list(count)
    for index in range(count):
        set_item(items, index, read_value(op, source, False))
        source.until_pause -= 1
        if source.until_pause <= 0:
            source.until_pause = ELEMENTS_BETWEEN_PAUSES
            let_others_run()
    Py_INCREF(items)
    return <PyObject *>items


cdef PyObject *read_value(Op *op, Source *source, bint is_nullable) except NULL:
    cdef int kind = op.kind
    cdef object struct
    cdef PyObject *flag
    cdef uint64_t bits
    cdef double number
    if kind == INT32:
        return PyLong_FromLong(<int32_t>load32(take(source, op, 4)))
    elif kind == STRING:
        return read_string(op, source, is_nullable)
    elif kind == STRUCT:
        struct = read_struct(<Program>op.program, source)
        Py_INCREF(struct)
        return <PyObject *>struct
    elif kind == INT64:
        return PyLong_FromLongLong(<int64_t>load64(take(source, op, 8)))
    elif kind == INT16:
        return PyLong_FromLong(<int16_t>load16(take(source, op, 2)))
    elif kind == INT8:
        return PyLong_FromLong(<int8_t>take(source, op, 1)[0])
    elif kind == BOOL:
        flag = Py_True if take(source, op, 1)[0] else Py_False
        Py_INCREF(<object>flag)
        return flag
    elif kind == UUID:
        return raw_bytes(<const char *>take(source, op, 16), 16)
    elif kind == UINT16:
        return PyLong_FromLong(load16(take(source, op, 2)))
    elif kind == UINT32:
        return PyLong_FromLongLong(load32(take(source, op, 4)))
    elif kind == FLOAT64:
        bits = load64(take(source, op, 8))
        memcpy(&number, &bits, 8)
        return PyFloat_FromDouble(number)
    return read_bytes(op, source, is_nullable)


cdef PyObject *read_string(Op *op, Source *source, bint is_nullable) except NULL:
    cdef Py_ssize_t size = length_of(source, op, True)
    cdef PyObject *text
    if size < 0:
        if not is_nullable:
            malformed(source, <object>op.name, "null is not allowed")
        Py_INCREF(None)
        return Py_None
    if size > STRING_BYTES_MAX:
        malformed(source, <object>op.name, f"string of {size} bytes")
    text = PyUnicode_DecodeUTF8(<const char *>take(source, op, size), size, NULL)
    if text == NULL:
        PyErr_Clear()
        malformed(source, <object>op.name, "not UTF-8")
    if size > BYTES_LIKE_ELEMENT:
        source.until_pause -= <int>(size // BYTES_LIKE_ELEMENT)
        # Cached in the string: a handler with thousands of long names would hash them at once.
        PyObject_Hash(<object>text)
    return text


cdef PyObject *read_bytes(Op *op, Source *source, bint is_nullable) except NULL:
    cdef Py_ssize_t size = length_of(source, op, False)
    cdef Py_ssize_t start
    cdef const uint8_t *content
    if size < 0:
        if not is_nullable:
            malformed(source, <object>op.name, "null is not allowed")
        Py_INCREF(None)
        return Py_None
    start = source.position
    content = take(source, op, size)
    if op.kind == BYTES:
        return raw_bytes(<const char *>content, size)
    if source.view == NULL:
        view = PyMemoryView_FromObject(<object>source.owner)
        if not PyBytes_CheckExact(<object>source.owner):
            view = view.cast("B")
        Py_INCREF(view)
        source.view = <PyObject *>view
    return cut(<object>source.view, start, size)


cdef PyObject *cut(object view, Py_ssize_t start, Py_ssize_t size) except NULL:
    """`view[start:start + size]` at half the price: a new view of the same bytes that no other code
    has seen yet is narrowed in place, which is what slicing does after making a slice object.
    """
    cdef object narrowed = PyMemoryView_FromObject(view)
    cdef Py_buffer *buffer = PyMemoryView_GET_BUFFER(narrowed)
    buffer.buf = <char *>buffer.buf + start
    buffer.len = size
    buffer.shape[0] = size
    Py_INCREF(narrowed)
    return <PyObject *>narrowed


cdef int read_tags(Program program, object struct, Source *source) except -1:
    """Tagged fields, in ascending order; unknown ones are skipped and not kept."""
    cdef Op *op = program.ops + program.step_count
    cdef Op *end = program.ops + program.tagged_end
    cdef Py_ssize_t count = varint(source, "tags")
    cdef Py_ssize_t tag, size, field_end
    cdef Py_ssize_t last_tag = -1
    cdef int unknown = 0
    while count > 0:
        count -= 1
        tag = varint(source, "tags")
        if tag <= last_tag:
            malformed(source, "tags", f"tag {tag} after tag {last_tag}")
        last_tag = tag
        size = varint(source, "tags")
        if size > left(source):
            too_short(source, "tags", size)
        while op < end and op.tag < tag:
            slot_of(struct, op)[0] = new_default(op)
            op += 1
        if op < end and op.tag == tag:
            field_end = source.position + size
            slot_of(struct, op)[0] = read_field(op, source, True)
            if source.position != field_end:
                malformed(source, <object>op.name, f"its size is not the {size} bytes announced")
            op += 1
            continue
        if tag in program.refused_tags:
            malformed(source, "tags", f"tag {tag} does not belong to this version")
        unknown += 1
        if unknown > UNKNOWN_TAGS_MAX:
            malformed(source, "tags", f"more than {UNKNOWN_TAGS_MAX} unknown tags")
        source.position += size
    while op < end:
        slot_of(struct, op)[0] = new_default(op)
        op += 1
    return 0


cdef object read_message(
    Program program, object buffer, Py_ssize_t *offset, Py_ssize_t budget, bint is_whole
):
    """Reads at `offset` and moves it to the end of the message."""
    cdef Source source
    cdef Py_buffer exported
    cdef bint is_exported = not PyBytes_CheckExact(buffer)
    if is_exported:
        PyObject_GetBuffer(buffer, &exported, PyBUF_SIMPLE)
        source.bytes = <const uint8_t *>exported.buf
        source.end = exported.len
    else:
        source.bytes = <const uint8_t *>PyBytes_AS_STRING(buffer)
        source.end = PyBytes_GET_SIZE(buffer)
    source.position = offset[0]
    source.budget = source.elements_left = budget
    source.until_pause = ELEMENTS_BETWEEN_PAUSES
    source.owner = <PyObject *>buffer
    source.view = NULL
    source.label = <PyObject *>program.label
    try:
        if not 0 <= source.position <= source.end:
            raise MalformedRequestError(
                f"{program.label}: offset {source.position} is outside the input"
            )
        message = read_struct(program, &source)
        if is_whole and source.position != source.end:
            raise MalformedRequestError(f"{program.label}: {left(&source)} bytes after the end")
    finally:
        if source.view != NULL:
            Py_DECREF(<object>source.view)
        if is_exported:
            PyBuffer_Release(&exported)
    offset[0] = source.position
    return message


def decode(message_class, version, buffer, *, Py_ssize_t budget=ELEMENT_BUDGET):
    cdef Py_ssize_t offset = 0
    return read_message(program_of(message_class, version), buffer, &offset, budget, True)


def decode_prefix(
    message_class, version, buffer, Py_ssize_t offset=0, *, Py_ssize_t budget=ELEMENT_BUDGET
):
    message = read_message(program_of(message_class, version), buffer, &offset, budget, False)
    return message, offset
