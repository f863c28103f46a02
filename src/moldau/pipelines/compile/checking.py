"""Checks a pipeline before it runs: every query plan, and whether its checkpoint fits."""

from typing import Any

from moldau.core.pipelines.graph import Pipeline
from moldau.pipelines.compile.lookups import shapes_of_lookups
from moldau.pipelines.compile.queries import Query, compile_queries, query_frame
from moldau.pipelines.compile.source_options import group_of
from moldau.pipelines.compile.sources import StreamTerms, stream_of
from moldau.pipelines.run.checkpoint_metadata import CheckpointMetadata
from moldau.pipelines.run.plan_compatibility import refuse_other_plans
from moldau.pipelines.run.run_folder import RunFolder


def check_plans(session: Any, pipeline: Pipeline, folder: RunFolder) -> list[Query]:
    """Analyses the plans without data or a broker, and compares them with a checkpoint on this
    machine. Raises MoldauError.
    """
    own = session.newSession()

    def read(source: str, query: str) -> Any:
        terms = StreamTerms(group_of(pipeline, query), start="earliest")
        return stream_of(own, pipeline, source, terms)

    queries = compile_queries(own, pipeline, read)
    if folder.is_here:
        metadata = CheckpointMetadata(own, folder.checkpoint)
        lookups = shapes_of_lookups(own, pipeline)
        frames = [(query, query_frame(own, pipeline, query, read, lookups)) for query in queries]
        refuse_other_plans(metadata, folder, pipeline, frames)
    return queries
