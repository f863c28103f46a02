"""Moldau in Spark jobs: the data source `moldau` for PySpark, and exactly-once writing to topics.
Needs `pip install 'moldau[spark]'`. Nothing here knows pipelines.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from moldau.spark.runtime.java import ensure_java
    from moldau.spark.sink.exactly_once import ExactlyOnceSink

__all__ = ["ExactlyOnceSink", "ensure_java"]

_MODULES = {
    "ExactlyOnceSink": "moldau.spark.sink.exactly_once",
    "ensure_java": "moldau.spark.runtime.java",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'moldau.spark' has no attribute '{name}'")
    from importlib import import_module

    try:
        return getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "moldau":
            raise
        raise ImportError(
            f"Spark jobs need {missing}; install it with pip install 'moldau[spark]'"
        ) from None
