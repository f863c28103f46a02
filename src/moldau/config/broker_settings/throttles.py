"""Limits that exist only at run time: server.properties does not have them."""

from moldau.config.checks import at_least
from moldau.config.schema import CLUSTER_WIDE, SettingGroup, setting
from moldau.config.values import LONG
from moldau.types import INT64_MAX


class ThrottleSettings(SettingGroup):
    follower_replication_throttled_rate: int = setting(
        "follower.replication.throttled.rate",
        LONG,
        INT64_MAX,
        "How many bytes per second this broker fetches for throttled replicas.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
    )
    leader_replication_throttled_rate: int = setting(
        "leader.replication.throttled.rate",
        LONG,
        INT64_MAX,
        "How many bytes per second this broker serves to throttled replicas.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = setting(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        INT64_MAX,
        "How fast replicas move between the log directories of this broker.",
        check=at_least(0),
        mode=CLUSTER_WIDE,
    )
