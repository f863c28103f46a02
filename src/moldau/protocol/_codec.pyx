"""The two compiled loops of the codec: one walks a program to read a message, one to write it.

A program is a plan (schema.py) in C: one `Op` per field with the place of its slot inside the object,
so that no attribute is looked up by name. Hostile input is checked by hand: no byte is read before
`left(source)` said that it is there. _codec_twin.py gives the same results in Python.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_GetItem
from cpython.exc cimport PyErr_Clear
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from moldau.protocol import primitives, schema
from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.primitives import EncodingError

cdef extern from *:
    """
    #include "structmember.h"

    /* Where a slot lives inside its object, or -1 if the descriptor is no plain writable slot. */
    static Py_ssize_t slot_offset(PyObject *descriptor) {
        if (Py_TYPE(descriptor) != &PyMemberDescr_Type) return -1;
        PyMemberDef *member = ((PyMemberDescrObject *)descriptor)->d_member;
        if (member->type != T_OBJECT_EX || (member->flags & READONLY)) return -1;
        return member->offset;
    }
    """
    Py_ssize_t slot_offset(object descriptor)

cdef extern from "Python.h":
    PyObject *PyType_GenericAlloc(PyTypeObject *kind, Py_ssize_t items) except NULL
    PyObject *PyLong_FromLong(long value) except NULL
    PyObject *PyLong_FromLongLong(long long value) except NULL
    PyObject *PyFloat_FromDouble(double value) except NULL
    PyObject *PyUnicode_DecodeUTF8(const char *text, Py_ssize_t size, const char *errors)
    PyObject *raw_bytes "PyBytes_FromStringAndSize"(const char *text, Py_ssize_t size) except NULL
    PyObject *PySequence_GetSlice(object sequence, Py_ssize_t low, Py_ssize_t high) except NULL
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size)
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    bint PyLong_Check(object value)
    bint PyUnicode_Check(object value)
    bint PyFloat_Check(object value)
    bint PyBytes_Check(object value)
    bint PyBytes_CheckExact(object value)
    bint PyList_Check(object value)
    bint PyTuple_Check(object value)
    bint PyObject_TypeCheck(object value, PyTypeObject *kind)
    void set_item "PyList_SET_ITEM"(object items, Py_ssize_t index, PyObject *value)
    PyObject *Py_None
    PyObject *Py_True
    PyObject *Py_False
    double PyFloat_AS_DOUBLE(object value)

cdef enum Kind:
    BOOL
    INT8
    INT16
    UINT16
    INT32
    UINT32
    INT64
    FLOAT64
    UUID
    STRING
    BYTES
    RECORDS
    STRUCT

cdef Py_ssize_t STRING_BYTES_MAX = primitives.STRING_BYTES_MAX
cdef Py_ssize_t LENGTH_MAX = primitives.LENGTH_MAX
cdef Py_ssize_t INLINE_BYTES_MAX = primitives.INLINE_BYTES_MAX
cdef int UNKNOWN_TAGS_MAX = primitives.UNKNOWN_TAGS_MAX
cdef Py_ssize_t ELEMENT_BUDGET = primitives.ELEMENT_BUDGET

cdef struct Op:
    int kind
    int tag
    bint is_array
    bint is_compact
    bint is_nullable
    bint is_new          # the default is a new list or structure
    bint is_ignorable    # may be dropped by a version that cannot carry it
    Py_ssize_t slot
    Py_ssize_t element_min_bytes
    PyObject *name       # these three are kept alive by the program's plan and children
    PyObject *default_value
    PyObject *program


cdef class Program:
    """A plan laid out for C: steps, then tagged fields in tag order, then fields of other versions."""

    cdef Op *ops
    cdef int step_count, tagged_end, op_count
    cdef bint is_flexible
    cdef PyTypeObject *kind
    cdef object plan, label, struct_class, refused_tags
    cdef list children

    def __dealloc__(self):
        PyMem_Free(self.ops)

    @staticmethod
    cdef Program compile(object plan, dict built):
        cdef Program program = built.get(plan.struct_class)
        if program is not None:
            return program
        program = Program.__new__(Program)
        steps = plan.steps + plan.tagged + plan.absent
        program.plan = plan
        program.label = plan.label
        program.struct_class = plan.struct_class
        program.kind = <PyTypeObject *>plan.struct_class
        program.refused_tags = plan.refused_tags
        program.is_flexible = plan.is_flexible
        program.step_count = len(plan.steps)
        program.tagged_end = program.step_count + len(plan.tagged)
        program.op_count = len(steps)
        program.children = []
        program.ops = <Op *>PyMem_Calloc(len(steps) + 1, sizeof(Op))
        if program.ops == NULL:
            raise MemoryError
        for index, step in enumerate(steps):
            program._fill(&program.ops[index], step, built)
        built[plan.struct_class] = program
        return program

    cdef int _fill(self, Op *op, object step, dict built) except -1:
        op.kind = step.kind
        op.tag = step.tag
        op.is_array = step.is_array
        op.is_compact = step.is_compact
        op.is_nullable = step.is_nullable
        op.is_new = isinstance(step.default, tuple)
        op.is_ignorable = step not in self.plan.refused
        op.element_min_bytes = max(step.element_min_bytes, 1)
        op.slot = slot_offset(getattr(self.struct_class, step.name))
        if op.slot < 0:
            raise TypeError(f"{self.struct_class.__name__}.{step.name} is not a slot")
        name, default = step.name, step.default
        op.name = <PyObject *>name
        op.default_value = <PyObject *>default
        child = Program.compile(step.plan, built) if step.plan is not None else None
        op.program = <PyObject *>child
        self.children += [name, default, child]
        return 0


# One list of programs per class, by version: cheaper to look up than a (class, version) pair.
cdef dict _programs = {}


cdef Program program_of(object message_class, object version_number):
    cdef PyObject *found = PyDict_GetItem(_programs, message_class)
    cdef Py_ssize_t version = version_number
    if found != NULL and 0 <= version < PyList_GET_SIZE(<list>found):
        program = <object>PyList_GET_ITEM(<list>found, version)
        if program is not None:
            return <Program>program
    program = Program.compile(schema.build_plan(message_class, version), {})
    by_version = _programs.setdefault(message_class, [])
    by_version.extend([None] * (version + 1 - len(by_version)))
    by_version[version] = program
    return <Program>program


cdef inline PyObject **slot_of(object struct, Op *op) noexcept:
    return <PyObject **>(<char *><PyObject *>struct + op.slot)


cdef PyObject *new_default(Op *op) except NULL:
    """The default as a new reference; lists and structures are never shared."""
    cdef object fresh
    if not op.is_new:
        fresh = <object>op.default_value
    elif op.is_array:
        fresh = PyList_New(0)
    else:
        fresh = new_struct(<Program>op.program)
    Py_INCREF(fresh)
    return <PyObject *>fresh


cdef object new_struct(Program program):
    cdef PyObject *raw = PyType_GenericAlloc(program.kind, 0)
    cdef object struct = <object>raw
    cdef int index
    Py_DECREF(struct)
    for index in range(program.op_count):
        slot_of(struct, &program.ops[index])[0] = new_default(&program.ops[index])
    return struct


# ---------------------------------------------------------------------------------------- reading

cdef struct Source:
    const uint8_t *bytes
    Py_ssize_t position
    Py_ssize_t end
    Py_ssize_t elements_left
    Py_ssize_t budget
    PyObject *owner      # borrowed: whose bytes these are
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
    cdef PyObject *raw = PyType_GenericAlloc(program.kind, 0)
    cdef object struct = <object>raw
    cdef Op *op = program.ops
    cdef Op *end = op + program.step_count
    Py_DECREF(struct)
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
    items = PyList_New(count)
    for index in range(count):
        set_item(items, index, read_value(op, source, False))
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
    return PySequence_GetSlice(<object>source.view, start, start + size)


cdef int read_tags(Program program, object struct, Source *source) except -1:
    """Tagged fields, in rising order; unknown ones are stepped over and not kept."""
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


# ---------------------------------------------------------------------------------------- writing

cdef struct Target:
    uint8_t *bytes
    Py_ssize_t size
    Py_ssize_t capacity
    Py_ssize_t outside_bytes
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
    """A place for `size` more bytes, which count as written."""
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
    # Nothing has so many tagged fields that their number takes two bytes.
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


cdef int write_array(Op *op, object items, Target *target) except -1:
    cdef Py_ssize_t index, count
    cdef object item
    # A tuple cannot change under our feet; a list could while a foreign buffer runs its own code.
    if PyList_Check(items):
        count = PyList_GET_SIZE(items)
    elif PyTuple_Check(items):
        count = PyTuple_GET_SIZE(items)
    else:
        unwritable(target, op, f"needs a list, got {type_name(items)}")
        return -1
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
        unwritable(target, op, f"string of {size} bytes")
    write_length(target, op, size, True)
    memcpy(room(target, size), text, size)
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
    """Copies what is short; notes the place of what is long, unless a tag must know its size."""
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


cdef list chunks_of(Target *target):
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t position
    cdef list chunks = []
    if target.outside != NULL:
        for position, owner, _ in <list>target.outside:
            if position > start:
                chunks.append(
                    PyBytes_FromStringAndSize(<char *>target.bytes + start, position - start)
                )
            chunks.append(owner)
            start = position
    if target.size > start or not chunks:
        chunks.append(PyBytes_FromStringAndSize(<char *>target.bytes + start, target.size - start))
    return chunks


cdef object write_message(object message, object version, bint in_chunks):
    cdef Program program = program_of(type(message), version)
    cdef Target target
    target.capacity = 512
    target.bytes = <uint8_t *>PyMem_Malloc(target.capacity)
    if target.bytes == NULL:
        raise MemoryError
    target.size = target.outside_bytes = 0
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
    return write_message(message, version, False)


def encode_chunks(message, version):
    return write_message(message, version, True)
