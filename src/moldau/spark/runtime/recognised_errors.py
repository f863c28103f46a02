"""Errors that can only be recognised by their text: py4j, Spark's tasks and Spark Connect carry
messages between processes, but no exceptions. All such texts are here.
"""

# Spark gives Python ten seconds to start, which a very busy machine may exceed. There is no setting
# for it.
_SLOW_PYTHON_START = "Python worker failed to connect back"
_PATH_NOT_FOUND = "PATH_NOT_FOUND"


def is_raised(kind: type[BaseException], error: BaseException) -> bool:
    """Whether the error is of this class, or names this class because it comes from another
    process.
    """
    return isinstance(error, kind) or kind.__name__ in str(error)


def is_slow_python_start(error: BaseException | None) -> bool:
    """Whether Spark gave up because a Python worker was slow to start."""
    return _SLOW_PYTHON_START in str(error)


def is_path_not_found(error: BaseException) -> bool:
    """Whether Spark did not find the path to read."""
    return _PATH_NOT_FOUND in str(error)
