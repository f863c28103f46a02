"""Topics that a pipeline writes are made if they are not there; those that it reads must be."""

from moldau import Admin
from moldau.admin import NewTopic
from moldau.core.pipelines.graph import Pipeline, Topic
from moldau.pipelines.sources import DEFAULT_BOOTSTRAP
from moldau.protocol.errors import KafkaError, MoldauError


def ensure_topics(pipeline: Pipeline) -> None:
    """Raises MoldauError."""
    wanted, read = written_topics(pipeline), _read_topics(pipeline)
    if not wanted and not read:
        return
    settings = {"bootstrap.servers": DEFAULT_BOOTSTRAP, **dict(pipeline.settings)}
    with Admin(settings.pop("bootstrap.servers"), config=settings) as admin:
        there = admin.list_topics()
        for name, source in read.items():
            if name not in there and name not in wanted:
                raise MoldauError(f"{source.spot}: there is no topic '{name}' to read")
        new = [topic for name, topic in wanted.items() if name not in there]
        for name, made in (admin.create_topics(new) if new else {}).items():
            if isinstance(made, KafkaError):
                raise MoldauError(f"topic {name} cannot be made: {made}")


def written_topics(pipeline: Pipeline) -> dict[str, NewTopic]:
    found: dict[str, NewTopic] = {}
    for flow in pipeline.flows.values():
        if isinstance(flow.into, Topic):
            configs = {"cleanup.policy": "compact"} if flow.into.compacted else {}
            found[flow.into.name] = NewTopic(name=flow.into.name, configs=configs)
    for source in pipeline.sources.values():
        if source.dead_letter is not None:
            found.setdefault(source.dead_letter, NewTopic(name=source.dead_letter))
    return found


def _read_topics(pipeline: Pipeline) -> dict[str, Topic]:
    return {
        source.name: source for source in pipeline.sources.values() if isinstance(source, Topic)
    }
