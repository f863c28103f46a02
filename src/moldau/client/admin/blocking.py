"""The blocking admin client: every method runs the asyncio client's method of the same name in the
client's own thread, and has its docstring.
"""

import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from moldau.client.admin import aio
from moldau.client.arguments.admin import AdminArguments
from moldau.client.loop_thread import LoopThread
from moldau.client.twin_docs import documented_by

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _blocking(
    method: Callable[Concatenate[aio.Admin, Arguments], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate["Admin", Arguments], Result]:
    @functools.wraps(method)
    def call(self: "Admin", /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self._thread.run(method(self._admin, *args, **kwargs))

    return call


class Admin:
    """Administers a cluster: topics, settings, groups, transactions, brokers.

    Any number of threads may use it. A forked process needs one of its own. An error that concerns
    one item is a value in the result of the call. An error of the whole call is raised: KafkaError
    if a broker reports it, ClientError otherwise. Retriable errors are retried for
    default.api.timeout.ms.

    Examples:
        >>> from moldau.admin import ConfigChange, ConfigResource, ConfigResourceType, NewTopic
        >>> from moldau.admin import Operation
        >>> from moldau.testing import broker
        >>> with broker() as b, Admin(b.bootstrap) as admin:
        ...     _ = admin.create_topics([NewTopic(name="orders", partitions=3)])
        ...     topic = ConfigResource(ConfigResourceType.TOPIC, "orders")
        ...     change = ConfigChange("retention.ms", Operation.SET, "1000")
        ...     done = admin.alter_configs({topic: [change]})
        ...     (entry,) = admin.describe_configs([topic], names=["retention.ms"])[topic]
        ...     sorted(admin.list_topics()), done[topic], entry.value, entry.source.name
        (['orders'], None, '1000', 'DYNAMIC_TOPIC_CONFIG')
    """

    @documented_by(aio.Admin.__init__)
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[AdminArguments],
    ) -> None:
        self._admin = aio.Admin(bootstrap_servers, config=config, **settings)
        self.config = self._admin.config
        self._thread = LoopThread("moldau-admin")

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self._thread.end_in_background(self, self._admin.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @documented_by(aio.Admin.close)
    def close(self) -> None:
        if self._thread.is_usable:
            self._thread.run(self._admin.close())
            self._thread.close()

    list_topics = _blocking(aio.Admin.list_topics)
    describe_topics = _blocking(aio.Admin.describe_topics)
    create_topics = _blocking(aio.Admin.create_topics)
    delete_topics = _blocking(aio.Admin.delete_topics)
    delete_topics_by_id = _blocking(aio.Admin.delete_topics_by_id)
    create_partitions = _blocking(aio.Admin.create_partitions)
    delete_records = _blocking(aio.Admin.delete_records)
    list_offsets = _blocking(aio.Admin.list_offsets)
    elect_leaders = _blocking(aio.Admin.elect_leaders)

    describe_configs = _blocking(aio.Admin.describe_configs)
    alter_configs = _blocking(aio.Admin.alter_configs)
    list_config_resources = _blocking(aio.Admin.list_config_resources)

    list_groups = _blocking(aio.Admin.list_groups)
    describe_groups = _blocking(aio.Admin.describe_groups)
    list_group_offsets = _blocking(aio.Admin.list_group_offsets)
    alter_group_offsets = _blocking(aio.Admin.alter_group_offsets)
    delete_group_offsets = _blocking(aio.Admin.delete_group_offsets)
    delete_groups = _blocking(aio.Admin.delete_groups)
    remove_members = _blocking(aio.Admin.remove_members)

    list_transactions = _blocking(aio.Admin.list_transactions)
    describe_transactions = _blocking(aio.Admin.describe_transactions)
    describe_producers = _blocking(aio.Admin.describe_producers)
    find_hanging_transactions = _blocking(aio.Admin.find_hanging_transactions)
    abort_transaction = _blocking(aio.Admin.abort_transaction)
    fence_producers = _blocking(aio.Admin.fence_producers)

    describe_cluster = _blocking(aio.Admin.describe_cluster)
    describe_quorum = _blocking(aio.Admin.describe_quorum)
    describe_features = _blocking(aio.Admin.describe_features)
    update_features = _blocking(aio.Admin.update_features)
    served_versions = _blocking(aio.Admin.served_versions)
    unregister_broker = _blocking(aio.Admin.unregister_broker)
    describe_log_dirs = _blocking(aio.Admin.describe_log_dirs)
    alter_replica_log_dirs = _blocking(aio.Admin.alter_replica_log_dirs)
