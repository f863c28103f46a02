"""Views of files that only the kernel reads, while it writes to a socket: no copy of our own. They
are parts of memory maps. A sector that cannot be read would be SIGBUS if this process read the map;
a system call fails with an error instead. Twin: _file_views_twin.py.

A few maps are kept, the most recently used of all files: creating a map, letting the kernel fill it
page by page and dropping it costs more than the copy that it saves. So a map is made only for bytes
that are requested a second time, as by several readers at the end of a log; a single reader of a
long log gets copies. Maps cover parts of files, so that `top` does not count everything ever sent
as memory of the process.

Only Linux can report what is cached without reading it; on other systems there are no views.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport errno
from libc.stdint cimport int64_t

from moldau.storage.disk._file_views_twin import ASKED_MAX, MAP_BYTES, MAPS_KEPT, VIEW_BYTES_MAX

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #ifdef __linux__
    #include <fcntl.h>
    #include <sys/mman.h>
    #include <sys/syscall.h>
    #include <unistd.h>

    static int64_t moldau_page_bytes(void) { return sysconf(_SC_PAGESIZE); }
    /* fcntl and fstat would tie the wheel to the C library of the machine that builds it. */
    static int moldau_dup(int fd) { return (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0); }
    static int moldau_close(int fd) { return close(fd); }
    static char *moldau_map(int fd, int64_t position, size_t length) {
        void *start = mmap(NULL, length, PROT_READ, MAP_SHARED, fd, position);
        return start == MAP_FAILED ? NULL : (char *)start;
    }
    static void moldau_unmap(char *start, size_t length) { munmap(start, length); }
    /* Only this function uses the descriptor's own position. */
    static int64_t moldau_size(int fd) { return lseek(fd, 0, SEEK_END); }
    /* `start` is at the start of a page. */
    static int moldau_is_cached(char *start, size_t length, size_t page_bytes) {
        unsigned char pages[4096];
        while (length > 0) {
            size_t part = sizeof(pages) * page_bytes, index;
            if (part > length) part = length;
            if (mincore(start, part, pages) != 0) return 0;
            for (index = 0; index < (part + page_bytes - 1) / page_bytes; index++)
                if (!(pages[index] & 1)) return 0;
            start += part;
            length -= part;
        }
        return 1;
    }
    static ptrdiff_t moldau_read(int fd, char *target, size_t length, int64_t position) {
        return pread(fd, target, length, position);
    }
    #else
    static int64_t moldau_page_bytes(void) { return 4096; }
    static int moldau_dup(int fd) { return -1; }
    static int moldau_close(int fd) { return -1; }
    static char *moldau_map(int fd, int64_t position, size_t length) { return NULL; }
    static void moldau_unmap(char *start, size_t length) {}
    static int64_t moldau_size(int fd) { return -1; }
    static int moldau_is_cached(char *start, size_t length, size_t page_bytes) { return 0; }
    static ptrdiff_t moldau_read(int fd, char *target, size_t length, int64_t position) {
        return -1;
    }
    #endif
    """
    int64_t moldau_page_bytes()
    int moldau_dup(int fd)
    int moldau_close(int fd)
    char* moldau_map(int fd, int64_t position, size_t length)
    void moldau_unmap(char* start, size_t length)
    int64_t moldau_size(int fd)
    int moldau_is_cached(char* start, size_t length, size_t page_bytes)
    ptrdiff_t moldau_read(int fd, char* target, size_t length, int64_t position) nogil

cdef Py_ssize_t KEPT_MAX = MAPS_KEPT
cdef Py_ssize_t NOTED_MAX = ASKED_MAX
cdef int64_t LENGTH_BYTES = MAP_BYTES
# So that no view of up to that size that begins in a map extends beyond it.
cdef int64_t STEP_BYTES = MAP_BYTES - VIEW_BYTES_MAX
cdef int64_t PAGE_BYTES = moldau_page_bytes()


cdef class _Map:
    """A part of a file with a descriptor of its own: it outlives the `File` that it was made from.
    """
    cdef char* start
    cdef int64_t position
    cdef size_t length
    cdef int fd

    def __cinit__(self, int fd, int64_t position, size_t length):
        self.position, self.length = position, length
        self.fd = moldau_dup(fd)
        if self.fd >= 0:
            self.start = moldau_map(fd, position, length)

    def __dealloc__(self):
        if self.start != NULL:
            moldau_unmap(self.start, self.length)
        if self.fd >= 0:
            moldau_close(self.fd)


cdef class FileView:
    cdef _Map map
    cdef int64_t position
    cdef Py_ssize_t size

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        cdef char* first = self.map.start + (self.position - self.map.position)
        PyBuffer_FillInfo(buffer, self, first, self.size, True, flags)

    def read_from(self, Py_ssize_t start):
        cdef Py_ssize_t wanted = self.size - start, got = 0
        cdef ptrdiff_t more
        cdef int fd = self.map.fd
        cdef int64_t position = self.position + start
        cdef bytes rest = PyBytes_FromStringAndSize(NULL, wanted)
        cdef char* target = PyBytes_AS_STRING(rest)
        while got < wanted:
            with nogil:
                more = moldau_read(fd, target + got, wanted - got, position + got)
            if more < 0:
                raise OSError(errno, "the rest of a response cannot be read")
            if more == 0:
                raise EOFError
            got += more
        return rest


# By descriptor and number, the most recently used last.
cdef dict _kept = {}


# Ends of responses that were not sent from a map, by descriptor and the mebibyte of their start.
cdef dict _asked = {}


cdef bint _was_asked_for(int fd, int64_t position, int64_t size):
    """Whether part of it was requested recently."""
    cdef tuple key = (fd, position >> 20)
    cdef int64_t end = _asked.pop(key, -1)
    if len(_asked) >= NOTED_MAX:
        del _asked[next(iter(_asked))]
    _asked[key] = position + size
    return position < end


cdef _keep(tuple key, _Map found):
    if len(_kept) >= KEPT_MAX:
        del _kept[next(iter(_kept))]
    _kept[key] = found


def cached_view(int fd, int64_t position, int64_t size):
    cdef int64_t number = position // STEP_BYTES
    cdef int64_t first = number * STEP_BYTES, length = LENGTH_BYTES, shift
    cdef tuple key = (fd, number)
    cdef _Map found = None
    cdef bint is_kept = position + size <= first + length
    if position + size > moldau_size(fd):
        return None
    if is_kept:
        found = _kept.pop(key, None)
        if found is None and not _was_asked_for(fd, position, size):
            return None
    else:
        first = position - position % PAGE_BYTES
        length = position + size - first
    if found is None:
        found = _Map(fd, first, length)
        if found.start == NULL:
            return None
    shift = (position - first) % PAGE_BYTES
    if not moldau_is_cached(
        found.start + (position - first - shift), size + shift, PAGE_BYTES
    ):
        return None
    if is_kept:
        _keep(key, found)
    cdef FileView view = FileView.__new__(FileView)
    view.map, view.position, view.size = found, position, size
    return view


def forget(int fd):
    for known in (_kept, _asked):
        for key in [key for key in known if key[0] == fd]:
            del known[key]
