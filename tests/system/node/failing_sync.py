"""A disk whose syncs fail, or do not end, on demand: a library that is loaded in front of the C
library. As long as a switch is on, it answers fsync and fdatasync of files below a folder with
EIO, or not at all.
"""

import subprocess
from pathlib import Path

from support.missing import skip_except_in_ci

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is_on(const char *name) {
    const char *on = getenv(name);
    return on != NULL && access(on, F_OK) == 0;
}

static int fails(int fd) {
    const char *folder = getenv("FAILING_FOLDER");
    char link[64], path[4096];
    if (is_on("HANGING_SWITCH") && syscall(SYS_gettid) == getpid()) {
        close(creat(getenv("HANGING_NOW"), 0600));
        while (is_on("HANGING_SWITCH")) usleep(10000);
        return 0;
    }
    if (folder == NULL || !is_on("FAILING_SWITCH")) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size < 0) return 0;
    path[size] = 0;
    return strncmp(path, folder, strlen(folder)) == 0;
}

int fsync(int fd) {
    int (*next)(int) = dlsym(RTLD_NEXT, "fsync");
    if (fails(fd)) { errno = EIO; return -1; }
    return next(fd);
}

int fdatasync(int fd) {
    int (*next)(int) = dlsym(RTLD_NEXT, "fdatasync");
    if (fails(fd)) { errno = EIO; return -1; }
    return next(fd);
}
"""


class FailingSync:
    """`prefix` precedes a command whose files below `folder` shall fail."""

    def __init__(self, workshop: Path, folder: Path) -> None:
        source, library = workshop / "failing_sync.c", workshop / "failing_sync.so"
        source.write_text(_SOURCE)
        command = ["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            skip_except_in_ci(f"no C compiler that can make a library: {error}")
        self._switch = workshop / "syncs-fail"
        self._hanging_switch = workshop / "syncs-hang"
        self._hanging_now = workshop / "a-sync-hangs"
        self.prefix = (
            "env",
            f"LD_PRELOAD={library}",
            f"FAILING_FOLDER={folder}",
            f"FAILING_SWITCH={self._switch}",
            f"HANGING_SWITCH={self._hanging_switch}",
            f"HANGING_NOW={self._hanging_now}",
        )

    def begin(self) -> None:
        self._switch.touch()

    def end(self) -> None:
        self._switch.unlink()

    def hang(self) -> None:
        """Those of the main thread, in every folder."""
        self._hanging_switch.touch()

    @property
    def is_hanging(self) -> bool:
        return self._hanging_now.exists()
