"""Topics that a pipeline writes: created as declared, and left unchanged if they exist."""

from pathlib import Path

import pytest
from pipelines.pipeline_files import written

import moldau.pipelines as mp
from moldau import Admin
from moldau.admin import ConfigResource, ConfigResourceType, Topic
from moldau.pipelines.compile.topics import ensure_topics
from moldau.testing import broker

PIPELINE = """\
settings: {{bootstrap.servers: "{bootstrap}"}}
sources: {{numbers: {{topic: numbers, schema: n INT}}}}
steps:
  kept:
    sql: SELECT n FROM numbers
    into: {{topic: kept, partitions: {partitions}, config: {{{config}}}}}
"""


def test_a_target_is_created_with_its_partitions_and_settings(tmp_path: Path) -> None:
    def ensure(partitions: int, config: str) -> list[str]:
        content = PIPELINE.format(bootstrap=node.bootstrap, partitions=partitions, config=config)
        return ensure_topics(mp.load(written(tmp_path, "kept.yaml", content)))

    with broker() as node, Admin(node.bootstrap) as admin:
        admin.create_topics(["numbers"])
        with pytest.raises(
            mp.MoldauError, match=r"kept.yaml:6:11: topic kept cannot be created: .*"
        ):
            ensure(3, "retention.ms: soon")
        assert ensure(3, "retention.ms: 60000") == []
        topic = admin.describe_topics(["kept"])["kept"]
        assert isinstance(topic, Topic)
        assert len(topic.partitions) == 3
        place = ConfigResource(ConfigResourceType.TOPIC, "kept")
        entries = admin.describe_configs([place], names=["retention.ms"])[place]
        assert isinstance(entries, list)
        assert [entry.value for entry in entries] == ["60000"]
        assert ensure(5, "retention.ms: 70000") == [
            "topic kept has 3 partitions, not 5",
            "topic kept has retention.ms=60000, not 70000",
        ]


REPLICATED = """\
settings: {{bootstrap.servers: "{bootstrap}"}}
sources: {{numbers: {{topic: numbers, schema: n INT}}}}
steps: {{kept: {{sql: SELECT n FROM numbers, into: {{topic: kept, replication: {replication}}}}}}}
"""


def test_the_replication_of_a_target_is_requested_and_compared(tmp_path: Path) -> None:
    def ensure(replication: int) -> list[str]:
        content = REPLICATED.format(bootstrap=node.bootstrap, replication=replication)
        return ensure_topics(mp.load(written(tmp_path, "kept.yaml", content)))

    with broker() as node, Admin(node.bootstrap) as admin:
        admin.create_topics(["numbers"])
        with pytest.raises(mp.MoldauError, match=r"topic kept cannot be created: .*replication"):
            ensure(3)
        assert ensure(1) == []
        assert ensure(1) == []
        assert ensure(3) == ["topic kept has replication 1, not 3"]
