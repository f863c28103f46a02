"""The two compiled loops of the codec: one walks a program to read a message, one to write it.

A program is a plan (schema.py) in C: one `Op` per field with the place of its slot inside the object,
so that no attribute is looked up by name. This file compiles programs; the loops are in
_codec_read.pxi and _codec_write.pxi, one unit so that the C compiler can inline across them.
_codec_twin.py gives the same results in Python.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.dict cimport PyDict_GetItem
from cpython.exc cimport PyErr_Clear
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE, PyList_New
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from moldau.protocol.wire import primitives, schema
from moldau.protocol.errors import MalformedRequestError
from moldau.protocol.wire.primitives import EncodingError, MessageTooLargeError, shortened

cdef extern from *:
    """
    #include "structmember.h"

    /* Where a slot lives inside its object, or -1 if the descriptor is not a plain writable slot. */
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
    void PyObject_GC_UnTrack(object value)
    Py_ssize_t PyObject_Hash(object value) except? -1
    ctypedef struct PyThreadState
    PyThreadState *PyEval_SaveThread()
    void PyEval_RestoreThread(PyThreadState *state)

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
cdef Py_ssize_t NO_BUDGET = primitives.NO_BUDGET
cdef int ELEMENTS_BETWEEN_PAUSES = 500
cdef Py_ssize_t BYTES_LIKE_ELEMENT = primitives.BYTES_LIKE_ELEMENT
cdef Py_ssize_t CHUNK_BYTES = 1 << 20

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
        default = schema.fresh_default(step)
        # Only for defaults that are created each time: a new list, an unshared structure.
        op.is_new = default is not schema.fresh_default(step)
        op.is_ignorable = step not in self.plan.refused
        op.element_min_bytes = max(step.element_min_bytes, 1)
        op.slot = slot_offset(getattr(self.struct_class, step.name))
        if op.slot < 0:
            raise TypeError(f"{self.struct_class.__name__}.{step.name} is not a slot")
        name = step.name
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


cdef inline object allocate(Program program):
    """An object with empty slots.

    A message is a tree of plain values without weak references or attributes of its own, so
    reference counting frees it. Hidden from the cycle collector, a large message costs a third:
    otherwise its thousands of new objects trigger collections while it is being read.
    """
    cdef PyObject *raw = PyType_GenericAlloc(program.kind, 0)
    cdef object struct = <object>raw
    Py_DECREF(struct)
    PyObject_GC_UnTrack(struct)
    return struct


cdef inline list new_list(Py_ssize_t count):
    cdef list items = PyList_New(count)
    PyObject_GC_UnTrack(items)
    return items


cdef inline void let_others_run() noexcept:
    """A large message may be handled in a thread: releases the interpreter lock now and then."""
    PyEval_RestoreThread(PyEval_SaveThread())


cdef inline PyObject *new_default(Op *op) except NULL:
    """The default as a new reference."""
    if op.is_new:
        return new_empty(op)
    Py_INCREF(<object>op.default_value)
    return op.default_value


cdef PyObject *new_empty(Op *op) except NULL:
    cdef object fresh
    if op.is_array:
        fresh = new_list(0)
    else:
        fresh = schema.default_struct((<Program>op.program).struct_class)
    Py_INCREF(fresh)
    return <PyObject *>fresh


include "_codec_read.pxi"
include "_codec_write.pxi"
