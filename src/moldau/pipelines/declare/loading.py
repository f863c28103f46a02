"""Loads a user's file, `.py`, `.yaml` or a mix of both, as a valid pipeline."""

from pathlib import Path

from moldau.core.pipelines.graph import Pipeline, PipelineError, Problem, Spot
from moldau.core.pipelines.graph_checks import problems_of
from moldau.pipelines.declare.python_file import read_python
from moldau.pipelines.declare.yaml_file import read_yaml


def load(path: str | Path) -> Pipeline:
    """Loads a pipeline from a file and validates it. Needs no Spark and no broker.

    Args:
        path: A `.py` file, which is executed, or a `.yaml` file.

    Returns:
        The pipeline that the file declares.

    Raises:
        PipelineError: The file is missing or declares no valid pipeline. The error lists all
            problems, each with its line.

    Example:
        ```python
        pipeline = mp.load("orders.yaml")
        print(pipeline.name, list(pipeline.flows))
        ```
    """
    path = Path(path)
    start = Spot(str(path), 1)
    if not path.is_file():
        raise PipelineError(Problem(start, "there is no such file"))
    match path.suffix:
        case ".py":
            pipeline = read_python(path).pipeline(path)
        case ".yaml" | ".yml":
            pipeline = read_yaml(path).pipeline(path)
        case _:
            raise PipelineError(Problem(start, "a pipeline is a .py or a .yaml file"))
    if problems := problems_of(pipeline):
        raise PipelineError(*problems)
    return pipeline
