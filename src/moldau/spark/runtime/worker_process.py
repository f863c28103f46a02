"""Speeds up PySpark's garbage collection after each task."""

import gc

from pyspark import TaskContext


def freeze_garbage() -> None:
    """Call it at the end of a task. PySpark collects garbage after each task, which takes tens of
    milliseconds with all loaded modules: more than a small task. Modules stay loaded, so they are
    excluded from the first task on.
    """
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
