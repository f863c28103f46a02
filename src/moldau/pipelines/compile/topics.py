"""Creates the missing topics that a pipeline writes. Topics that it reads must exist."""

from moldau import Admin
from moldau.admin import ConfigResource, ConfigResourceType, NewTopic
from moldau.client.admin.topics import BROKERS_DEFAULT
from moldau.client.errors import NoBrokerError
from moldau.config.addresses import DEFAULT_BOOTSTRAP
from moldau.core.pipelines.graph import Pipeline, Spot, Topic
from moldau.protocol.errors import KafkaError, MoldauError


def ensure_topics(pipeline: Pipeline) -> list[str]:
    """Creates missing topics. Returns the differences between existing topics and the file. Raises
    MoldauError.
    """
    wanted, read = written_topics(pipeline), _read_topics(pipeline)
    if not wanted and not read:
        return []
    settings = {"bootstrap.servers": DEFAULT_BOOTSTRAP, **dict(pipeline.settings)}
    with Admin(settings.pop("bootstrap.servers"), config=settings) as admin:
        try:
            existing = admin.list_topics()
        except NoBrokerError as error:
            raise MoldauError(f"{error}; the address is from {pipeline.brokers_from}") from None
        for name, source in read.items():
            if name not in existing and name not in wanted:
                raise MoldauError(f"{source.spot}: topic '{name}' does not exist; create it first")
        new = [topic for name, topic in wanted.items() if name not in existing]
        for name, made in (admin.create_topics(new) if new else {}).items():
            if isinstance(made, KafkaError):
                raise MoldauError(
                    f"{_spots(pipeline)[name]}: topic {name} cannot be created: {made}"
                )
        return _differences(admin, [target for name, target in wanted.items() if name in existing])


def _differences(admin: Admin, wanted: list[NewTopic]) -> list[str]:
    """Existing topics are not changed, because others may use them."""
    specified = [
        target
        for target in wanted
        if target.partitions > 0 or target.replication_factor > 0 or target.configs
    ]
    if not specified:
        return []
    found = admin.describe_topics([target.name for target in specified])
    resources = [ConfigResource(ConfigResourceType.TOPIC, target.name) for target in specified]
    configs = admin.describe_configs(resources)
    lines = []
    for target, resource in zip(specified, resources, strict=True):
        topic, entries = found[target.name], configs[resource]
        if isinstance(topic, MoldauError) or isinstance(entries, MoldauError):
            continue
        count = len(topic.partitions)
        if 0 < target.partitions != count:
            counted = f"{count} partition{'s' * (count != 1)}"
            lines.append(f"topic {target.name} has {counted}, not {target.partitions}")
        copies = {len(partition.replicas) for partition in topic.partitions.values()}
        if target.replication_factor > 0 and copies != {target.replication_factor}:
            counts = ", ".join(map(str, sorted(copies)))
            lines.append(
                f"topic {target.name} has replication {counts}, not {target.replication_factor}"
            )
        values = {entry.name: entry.value for entry in entries}
        lines += [
            f"topic {target.name} has {name}={values.get(name)}, not {value}"
            for name, value in target.configs.items()
            if values.get(name) != value
        ]
    return lines


def _spots(pipeline: Pipeline) -> dict[str, Spot]:
    found = {source.dead_letter or "": source.spot for source in pipeline.sources.values()}
    return found | {
        flow.into.name: flow.into.spot
        for flow in pipeline.flows.values()
        if isinstance(flow.into, Topic)
    }


def written_topics(pipeline: Pipeline) -> dict[str, NewTopic]:
    found: dict[str, NewTopic] = {}
    for flow in pipeline.flows.values():
        if isinstance(flow.into, Topic):
            configs = {"cleanup.policy": "compact"} if flow.into.compacted else {}
            found[flow.into.name] = NewTopic(
                name=flow.into.name,
                partitions=flow.into.partitions or BROKERS_DEFAULT,
                replication_factor=flow.into.replication or BROKERS_DEFAULT,
                configs=configs | dict(flow.into.config),
            )
    for source in pipeline.sources.values():
        if source.dead_letter is not None:
            found.setdefault(source.dead_letter, NewTopic(name=source.dead_letter))
    return found


def _read_topics(pipeline: Pipeline) -> dict[str, Topic]:
    return {
        source.name: source for source in pipeline.sources.values() if isinstance(source, Topic)
    }
