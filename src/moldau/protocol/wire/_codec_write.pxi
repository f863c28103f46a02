# The writing half of _codec.pyx. Values are our own but may be wrong: type and range are checked.

cdef struct Target:
    uint8_t *bytes
    Py_ssize_t size
    Py_ssize_t capacity
    Py_ssize_t outside_bytes
    Py_ssize_t elements_left
    Py_ssize_t budget
    int until_pause
    PyObject *outside    # owned once made: list of (position, bytes-like, size) left uncopied
    int tag_depth
    PyObject *label      # borrowed


cdef int unwritable(Target *target, Op *op, object problem) except -1:
    raise EncodingError(f"{<object>target.label}: {<object>op.name}: {problem}")


cdef int grow(Target *target, Py_ssize_t size) except -1:
    cdef Py_ssize_t capacity = (target.size + size) * 2
    cdef uint8_t *bigger = <uint8_t *>PyMem_Realloc(target.bytes, capacity)
    if bigger == NULL:
        raise MemoryError
    target.bytes = bigger
    target.capacity = capacity
    return 0


cdef inline uint8_t *room(Target *target, Py_ssize_t size) except NULL:
    """Space for `size` more bytes, which count as written."""
    if target.capacity - target.size < size:
        grow(target, size)
    target.size += size
    return target.bytes + target.size - size


cdef inline void store16(uint8_t *place, uint16_t value) noexcept:
    place[0] = <uint8_t>(value >> 8)
    place[1] = <uint8_t>value


cdef inline void store32(uint8_t *place, uint32_t value) noexcept:
    place[0] = <uint8_t>(value >> 24)
    place[1] = <uint8_t>(value >> 16)
    place[2] = <uint8_t>(value >> 8)
    place[3] = <uint8_t>value


cdef inline void store64(uint8_t *place, uint64_t value) noexcept:
    store32(place, <uint32_t>(value >> 32))
    store32(place + 4, <uint32_t>value)


cdef inline int varint_size(uint32_t value) noexcept:
    cdef int size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


cdef inline void store_varint(uint8_t *place, uint32_t value) noexcept:
    while value > 0x7F:
        place[0] = <uint8_t>(value & 0x7F | 0x80)
        place += 1
        value >>= 7
    place[0] = <uint8_t>value


cdef inline int write_varint(Target *target, uint32_t value) except -1:
    store_varint(room(target, varint_size(value)), value)
    return 0


cdef inline int write_length(Target *target, Op *op, Py_ssize_t size, bint is_short) except -1:
    if size >= LENGTH_MAX:
        unwritable(target, op, f"{size} is too long")
    if op.is_compact:
        write_varint(target, <uint32_t>size + 1)
    elif is_short:
        store16(room(target, 2), <uint16_t>size)
    else:
        store32(room(target, 4), <uint32_t>size)
    return 0


cdef object type_name(object value):
    return type(value).__name__


cdef inline object slot_value(object struct, Op *op, Target *target):
    cdef PyObject *value = slot_of(struct, op)[0]
    if value == NULL:
        unwritable(target, op, "was deleted")
    return <object>value


cdef bint is_default(Op *op, object value, Target *target) except -1:
    """As schema.is_default."""
    cdef Program program
    cdef int index
    if <PyObject *>value == op.default_value:
        return True
    if value is None or op.default_value == Py_None:
        return False
    if op.is_array or op.kind == BYTES or op.kind == RECORDS:
        return not value
    if op.kind != STRUCT:
        return value == <object>op.default_value
    program = <Program>op.program
    if not PyObject_TypeCheck(value, program.kind):
        return False
    for index in range(program.op_count):
        if not is_default(
            &program.ops[index], slot_value(value, &program.ops[index], target), target
        ):
            return False
    return True


cdef int write_struct(Program program, object struct, Target *target) except -1:
    cdef Op *op = program.ops + program.tagged_end
    cdef Op *end = program.ops + program.op_count
    if not PyObject_TypeCheck(struct, program.kind):
        raise EncodingError(
            f"{program.label}: {program.struct_class.__name__}: got {type_name(struct)}"
        )
    while op < end:
        if not op.is_ignorable and not is_default(op, slot_value(struct, op, target), target):
            primitives.refused(program.label, <object>op.name)
        op += 1
    op = program.ops
    end = op + program.step_count
    while op < end:
        write_field(op, slot_value(struct, op, target), target, False)
        op += 1
    if program.is_flexible:
        write_tags(program, struct, target)
    return 0


cdef int write_tags(Program program, object struct, Target *target) except -1:
    cdef Op *op = program.ops + program.step_count
    cdef Op *end = program.ops + program.tagged_end
    cdef Py_ssize_t count_position = target.size
    cdef object value
    cdef int written = 0
    # No structure has so many tagged fields that their number takes two bytes.
    room(target, 1)[0] = 0
    while op < end:
        value = slot_value(struct, op, target)
        if not is_default(op, value, target):
            written += 1
            write_tagged(op, value, target)
        op += 1
    if written > 0x7F:
        raise OverflowError(f"{program.label}: {written} tagged fields")
    target.bytes[count_position] = <uint8_t>written
    return 0


cdef int write_tagged(Op *op, object value, Target *target) except -1:
    """Writes the field after one byte for its size, and moves it if the size needs more."""
    cdef Py_ssize_t start, size
    cdef int size_bytes
    write_varint(target, <uint32_t>op.tag)
    room(target, 1)
    start = target.size
    target.tag_depth += 1
    write_field(op, value, target, True)
    target.tag_depth -= 1
    size = target.size - start
    if size > LENGTH_MAX:
        unwritable(target, op, f"{size} is too long")
    size_bytes = varint_size(<uint32_t>size)
    if size_bytes > 1:
        room(target, size_bytes - 1)
        memmove(target.bytes + start + size_bytes - 1, target.bytes + start, size)
    store_varint(target.bytes + start - 1, <uint32_t>size)
    return 0


cdef int write_field(Op *op, object value, Target *target, bint is_tagged) except -1:
    if value is None:
        return write_null(op, target, is_tagged)
    if op.is_array:
        return write_array(op, value, target)
    if op.kind == STRUCT and op.is_nullable:
        room(target, 1)[0] = 1
    return write_value(op, value, target)


cdef int write_null(Op *op, Target *target, bint is_tagged) except -1:
    if not op.is_nullable:
        unwritable(target, op, "null is not allowed")
    if op.kind == STRUCT and not op.is_array and not is_tagged:
        room(target, 1)[0] = 0xFF
    elif op.is_compact or is_tagged:
        room(target, 1)[0] = 0
    elif op.kind == STRING and not op.is_array:
        store16(room(target, 2), 0xFFFF)
    else:
        store32(room(target, 4), <uint32_t>0xFFFFFFFF)
    return 0


cdef inline int spend(Target *target, Py_ssize_t count) except -1:
    target.elements_left -= count
    if target.elements_left < 0:
        raise MessageTooLargeError(
            f"{<object>target.label}: more than {target.budget} elements in one message"
        )
    return 0


cdef int write_array(Op *op, object items, Target *target) except -1:
    cdef Py_ssize_t index, count
    cdef object item
    # A tuple cannot change meanwhile; a list could while a foreign buffer runs its own code, or
    # through another thread.
    if PyList_Check(items):
        count = PyList_GET_SIZE(items)
    elif PyTuple_Check(items):
        count = PyTuple_GET_SIZE(items)
    else:
        unwritable(target, op, f"needs a list, got {type_name(items)}")
        return -1
    spend(target, count)
    write_length(target, op, count, False)
    for index in range(count):
        if PyTuple_Check(items):
            item = <object>PyTuple_GET_ITEM(items, index)
        elif index < PyList_GET_SIZE(items):
            item = <object>PyList_GET_ITEM(items, index)
        else:
            item = None
        if item is None:
            unwritable(target, op, "null is not allowed")
        write_value(op, item, target)
        target.until_pause -= 1
        if target.until_pause <= 0:
            target.until_pause = ELEMENTS_BETWEEN_PAUSES
            let_others_run()
    return 0


cdef int write_value(Op *op, object value, Target *target) except -1:
    cdef int kind = op.kind
    if INT8 <= kind <= INT64:
        return write_integer(op, value, target)
    elif kind == STRING:
        return write_string(op, value, target)
    elif kind == STRUCT:
        return write_struct(<Program>op.program, value, target)
    elif kind == BOOL:
        if value is True:
            room(target, 1)[0] = 1
        elif value is False:
            room(target, 1)[0] = 0
        else:
            unwritable(target, op, f"needs a bool, got {type_name(value)}")
        return 0
    elif kind == UUID:
        if not PyBytes_Check(value) or PyBytes_GET_SIZE(value) != 16:
            unwritable(target, op, "needs 16 bytes")
        memcpy(room(target, 16), PyBytes_AS_STRING(value), 16)
        return 0
    elif kind == FLOAT64:
        return write_float(op, value, target)
    return write_buffers(op, value, target)


cdef int write_integer(Op *op, object value, Target *target) except -1:
    cdef int overflow = 0
    cdef long long number
    cdef int kind = op.kind
    if not PyLong_Check(value):
        unwritable(target, op, f"needs an int, got {type_name(value)}")
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow:
        return out_of_range(op, value, target)
    if kind == INT32:
        if number != <int32_t>number:
            return out_of_range(op, value, target)
        store32(room(target, 4), <uint32_t>number)
    elif kind == INT64:
        store64(room(target, 8), <uint64_t>number)
    elif kind == INT16:
        if number != <int16_t>number:
            return out_of_range(op, value, target)
        store16(room(target, 2), <uint16_t>number)
    elif kind == INT8:
        if number != <int8_t>number:
            return out_of_range(op, value, target)
        room(target, 1)[0] = <uint8_t>number
    elif kind == UINT16:
        if number != <uint16_t>number:
            return out_of_range(op, value, target)
        store16(room(target, 2), <uint16_t>number)
    else:
        if number != <uint32_t>number:
            return out_of_range(op, value, target)
        store32(room(target, 4), <uint32_t>number)
    return 0


cdef int out_of_range(Op *op, object value, Target *target) except -1:
    low, high = {
        INT8: (-(1 << 7), (1 << 7) - 1),
        INT16: (-(1 << 15), (1 << 15) - 1),
        UINT16: (0, (1 << 16) - 1),
        INT32: (-(1 << 31), (1 << 31) - 1),
        UINT32: (0, (1 << 32) - 1),
        INT64: (-(1 << 63), (1 << 63) - 1),
    }[op.kind]
    return unwritable(target, op, f"{int(value)} is out of range {low}..{high}")


cdef int write_float(Op *op, object value, Target *target) except -1:
    cdef uint64_t bits
    cdef double number
    if not PyFloat_Check(value):
        unwritable(target, op, f"needs a float, got {type_name(value)}")
    number = PyFloat_AS_DOUBLE(value)
    memcpy(&bits, &number, 8)
    store64(room(target, 8), bits)
    return 0


cdef int write_string(Op *op, object value, Target *target) except -1:
    cdef Py_ssize_t size = 0
    cdef const char *text
    if not PyUnicode_Check(value):
        unwritable(target, op, f"needs a str, got {type_name(value)}")
    text = PyUnicode_AsUTF8AndSize(value, &size)
    if text == NULL:
        PyErr_Clear()
        unwritable(target, op, "not UTF-8")
    if size > STRING_BYTES_MAX:
        return write_string(op, shortened(<object>target.label, <object>op.name, value, size), target)
    write_length(target, op, size, True)
    memcpy(room(target, size), text, size)
    if size > BYTES_LIKE_ELEMENT:
        target.until_pause -= <int>(size // BYTES_LIKE_ELEMENT)
        spend(target, size // BYTES_LIKE_ELEMENT)
    return 0


cdef int write_buffers(Op *op, object value, Target *target) except -1:
    cdef Py_ssize_t total = 0
    if PyBytes_CheckExact(value):
        write_length(target, op, PyBytes_GET_SIZE(value), False)
        return write_content(value, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), target)
    is_several = op.kind == RECORDS and isinstance(value, (list, tuple))
    views = [view_of(op, part, target) for part in (value if is_several else (value,))]
    for view in views:
        total += len(view)
    write_length(target, op, total, False)
    for view in views:
        write_view(view, target)
    return 0


cdef object view_of(Op *op, object part, Target *target):
    if PyBytes_CheckExact(part):
        return part
    try:
        return PyMemoryView_FromObject(part).cast("B")
    except TypeError:
        return unwritable(target, op, f"needs bytes, got {type_name(part)}")


cdef int write_view(object view, Target *target) except -1:
    cdef Py_buffer exported
    PyObject_GetBuffer(view, &exported, PyBUF_SIMPLE)
    try:
        return write_content(view, <const char *>exported.buf, exported.len, target)
    finally:
        PyBuffer_Release(&exported)


cdef int write_content(
    object owner, const char *content, Py_ssize_t size, Target *target
) except -1:
    """Copies short buffers; notes the position of long ones, unless a tag needs its size."""
    if size <= INLINE_BYTES_MAX or target.tag_depth:
        memcpy(room(target, size), content, size)
        return 0
    if target.outside == NULL:
        outside = []
        Py_INCREF(outside)
        target.outside = <PyObject *>outside
    (<list>target.outside).append((target.size, owner, size))
    target.outside_bytes += size
    return 0


cdef int add_chunks(list chunks, Target *target, Py_ssize_t start, Py_ssize_t end) except -1:
    cdef Py_ssize_t size
    while start < end:
        size = min(end - start, CHUNK_BYTES)
        chunks.append(PyBytes_FromStringAndSize(<char *>target.bytes + start, size))
        start += size
        if start < end:
            let_others_run()
    return 0


cdef list chunks_of(Target *target):
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t position
    cdef list chunks = []
    if target.outside != NULL:
        for position, owner, _ in <list>target.outside:
            add_chunks(chunks, target, start, position)
            chunks.append(owner)
            start = position
    add_chunks(chunks, target, start, target.size)
    return chunks if chunks else [b""]


cdef object write_message(
    object message, object version, bint in_chunks, Py_ssize_t budget
):
    cdef Program program = program_of(type(message), version)
    cdef Target target
    target.capacity = 512
    target.bytes = <uint8_t *>PyMem_Malloc(target.capacity)
    if target.bytes == NULL:
        raise MemoryError
    target.size = target.outside_bytes = 0
    target.budget = target.elements_left = budget
    target.until_pause = ELEMENTS_BETWEEN_PAUSES
    target.outside = NULL
    target.tag_depth = 0
    target.label = <PyObject *>program.label
    try:
        write_struct(program, message, &target)
        if in_chunks:
            return chunks_of(&target)
        if target.outside != NULL:
            return b"".join(chunks_of(&target))
        return PyBytes_FromStringAndSize(<char *>target.bytes, target.size)
    finally:
        PyMem_Free(target.bytes)
        if target.outside != NULL:
            Py_DECREF(<object>target.outside)


def encode(message, version):
    return write_message(message, version, False, NO_BUDGET)


def encode_chunks(message, version, *, Py_ssize_t budget=NO_BUDGET):
    return write_message(message, version, True, budget)
