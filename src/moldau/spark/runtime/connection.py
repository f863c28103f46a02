"""Connections to brokers in a Python process of Spark: a cluster in a thread of its own for each
set of settings. Spark reuses its Python processes, and they reuse their connections.
"""

from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from moldau.client.cluster.cluster import Cluster
from moldau.client.cluster.settings import cluster_settings
from moldau.client.config import client_config
from moldau.client.consumer.options import FetchOptions, fetch_options
from moldau.client.errors import ConfigError
from moldau.client.loop_thread import LoopThread
from moldau.config.client_settings.consumer import ConsumerConfig
from moldau.core.spark.errors import OptionError

Result = TypeVar("Result")

_KEPT_MAX = 8
_shared: "dict[tuple[tuple[str, str], ...], Connection]" = {}


class Connection:
    def __init__(self, settings: Mapping[str, str]) -> None:
        self.config = consumer_config(settings)
        self.fetch: FetchOptions = fetch_options(self.config)
        self.thread = LoopThread("moldau-spark")
        self.cluster = self.thread.run(self._open())

    async def _open(self) -> Cluster:
        patience_ms = self.config.default_api_timeout_ms
        return Cluster(cluster_settings(self.config, retry_for_ms=patience_ms))

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.thread.run(work)

    def close(self) -> None:
        if self.thread.is_usable:
            self.thread.run(self.cluster.__aexit__(None, None, None))
            self.thread.close()


def connection_to(settings: Mapping[str, str]) -> Connection:
    """The connection that this process shares. It sends nothing before it is used."""
    key = tuple(sorted(settings.items()))
    connection = _shared.pop(key, None)
    if connection is None or not connection.thread.is_usable:
        while len(_shared) >= _KEPT_MAX:
            _shared.pop(next(iter(_shared))).close()
        connection = Connection(settings)
    # The most recently used connection is closed last.
    _shared[key] = connection
    return connection


def consumer_config(settings: Mapping[str, str]) -> ConsumerConfig:
    try:
        return client_config(ConsumerConfig, settings, {})
    except ConfigError as error:
        raise OptionError(f"kafka.{error}") from None
