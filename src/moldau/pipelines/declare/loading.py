"""From a user's file to a pipeline that can be: `.py`, `.yaml` or a mix of both."""

from pathlib import Path

from moldau.core.pipelines.graph import Pipeline, PipelineError, Problem, Spot
from moldau.core.pipelines.graph_checks import problems_of
from moldau.pipelines.declare.python_file import read_python
from moldau.pipelines.declare.yaml_file import read_yaml


def load(path: str | Path) -> Pipeline:
    """Raises PipelineError, with everything that is wrong."""
    path = Path(path)
    start = Spot(str(path), 1)
    if not path.is_file():
        raise PipelineError(Problem(start, "there is no such file"))
    match path.suffix:
        case ".py":
            found = read_python(path).pipeline(path)
        case ".yaml" | ".yml":
            found = read_yaml(path).pipeline(path)
        case _:
            raise PipelineError(Problem(start, "a pipeline is a .py or a .yaml file"))
    if problems := problems_of(found):
        raise PipelineError(*problems)
    return found
