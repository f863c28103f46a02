"""What Spark's Python processes, which serve many tasks, are spared between two of them."""

import gc

from pyspark import TaskContext


def settle() -> None:
    """Called when a task is done. PySpark collects garbage after each task and looks at all that is
    loaded then, for tens of milliseconds: more than a small task takes. Modules stay, so from the
    first task on they are left out.
    """
    if TaskContext.get() is not None and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
