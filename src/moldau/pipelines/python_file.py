"""A pipeline written in Python: the file is run, and what it declares is found by its variables."""

import sys
import traceback
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from moldau.core.pipelines.graph import Example, Files, Flow, Http, PipelineError, Spot, Topic
from moldau.pipelines.declare import FLOW_MARK, Settings, SqlFlow, wrong
from moldau.pipelines.parts import Parts


def read_python(path: Path) -> Parts:
    """Raises PipelineError."""
    return parts_of(run_file(path))


def run_file(path: Path) -> ModuleType:
    """As a module that no process can import: Spark then sends its functions as they are."""
    spec = spec_from_file_location(f"__pipeline_{path.stem}__", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    folder = str(path.parent.resolve())
    if folder not in sys.path:
        # What lies beside it can be imported, as in every script.
        sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except PipelineError:
        raise
    except SyntaxError as error:
        spot = Spot(str(path), error.lineno or 1, error.offset or 1)
        raise wrong(spot, f"{error.msg}") from None
    except Exception as error:  # noqa: BLE001 - a user's file may raise anything
        raise wrong(_where(error, path), f"{type(error).__name__}: {error}") from None
    return module


def parts_of(module: ModuleType) -> Parts:
    found = Parts()
    for name, value in vars(module).items():
        if isinstance(value, Topic | Files | Http):
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


def _where(error: Exception, path: Path) -> Spot:
    """The last line of the user's own file."""
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename) == path
    ]
    return Spot(str(path), (lines[-1] if lines else 1) or 1)
