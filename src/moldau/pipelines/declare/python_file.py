"""Reads a pipeline in Python: executes the file, and finds declarations in its variables."""

import re
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from moldau.core.pipelines.graph import (
    Example,
    Files,
    Flow,
    Http,
    PipelineError,
    Postgres,
    Spot,
    Table,
    Topic,
)
from moldau.pipelines.declare.arguments import pipeline_error
from moldau.pipelines.declare.declarations import Declarations
from moldau.pipelines.declare.flows import FLOW_MARK, Settings, SqlFlow
from moldau.pipelines.declare.source_locations import last_in, last_of_users
from moldau.spark.runtime.task_errors import PIPELINE_MODULE

_NO_SESSION = "[SESSION_OR_CONTEXT_NOT_EXISTS]"


def read_python(path: Path) -> Declarations:
    """Raises PipelineError."""
    return declarations_of(run_file(path))


def run_file(path: Path) -> ModuleType:
    """Executes the file as a module that no process can import, so that Spark sends its functions
    by value.
    """
    name = re.sub(r"\W", "_", path.stem)
    spec = spec_from_file_location(f"{PIPELINE_MODULE}{name}__", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        # Modules beside the file can be imported, as in every script.
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except PipelineError:
        raise
    except Exception as error:  # noqa: BLE001 - a user's file may raise anything
        raise _placed(path, error) from None
    return module


def _placed(path: Path, error: Exception) -> PipelineError:
    """The error with the line that raised it, in this file or in an imported one."""
    here = last_in(str(path), error)
    spot, message = last_of_users(error), _message_of(error)
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).is_file():
        spot, message = Spot(error.filename, error.lineno or 1, error.offset or 1), str(error.msg)
    if spot is None or Path(spot.file).resolve() == path.resolve():
        # The path as the user has written it.
        shown = here or spot or Spot(str(path), 1)
        return pipeline_error(Spot(str(path), shown.line, shown.column), message)
    return pipeline_error(spot, message if here is None else f"{message}; called from {here}")


def _message_of(error: Exception) -> str:
    text = f"{type(error).__name__}: {str(error).strip()}"
    if _NO_SESSION in text:
        text += (
            " A file is read before Spark starts: give a UDF its type as DoubleType(), not as a "
            "text, or make it inside the flow."
        )
    return text


def declarations_of(module: ModuleType) -> Declarations:
    found = Declarations()
    for name, value in vars(module).items():
        if isinstance(value, Table) or (isinstance(value, Postgres) and value.is_lookup):
            found.lookups[name] = value
        elif isinstance(value, Topic | Files | Http | Postgres):
            found.sources[name] = value
        elif isinstance(value, SqlFlow):
            found.flows[name] = replace(value.flow, name=name)
        elif isinstance(value, Settings):
            found.settings = value
        elif isinstance(value, Example):
            found.examples.append(value)
        elif isinstance(value, list | tuple) and value and isinstance(value[0], Example):
            found.examples += value
        elif isinstance(flow := getattr(value, FLOW_MARK, None), Flow):
            found.flows[flow.name] = flow
    return found
