"""Topic defaults, policies, metrics and other settings."""

from moldau.config.checks import at_least
from moldau.config.schema import CLUSTER_WIDE, HIGH, LOW, SettingGroup, setting
from moldau.config.values import BOOLEAN, CLASS, INT, LIST, LONG, MIB, STRING


class ServerSettings(SettingGroup):
    alter_config_policy_class_name: str | None = setting(
        "alter.config.policy.class.name",
        CLASS,
        None,
        "A class that may refuse changes of settings.",
        importance=LOW,
    )
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable",
        BOOLEAN,
        True,
        "Whether a metadata request for a topic that does not exist creates it, if the client "
        "allows that.",
        importance=HIGH,
        has_effect=True,
    )
    config_providers: tuple[str, ...] = setting(
        "config.providers",
        LIST,
        (),
        "Names of providers that replace ${provider:path:key} in values.",
        importance=LOW,
        mode=CLUSTER_WIDE,
    )
    create_topic_policy_class_name: str | None = setting(
        "create.topic.policy.class.name",
        CLASS,
        None,
        "A class that may refuse new topics.",
        importance=LOW,
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable",
        BOOLEAN,
        True,
        "Whether topics can be deleted.",
        importance=HIGH,
        has_effect=True,
    )
    kafka_metrics_polling_interval_secs: int = setting(
        "kafka.metrics.polling.interval.secs",
        INT,
        10,
        "How often kafka.metrics.reporters are polled.",
        check=at_least(1),
        importance=LOW,
    )
    kafka_metrics_reporters: tuple[str, ...] = setting(
        "kafka.metrics.reporters",
        LIST,
        (),
        "Classes that report the older kind of metrics.",
        importance=LOW,
    )
    metric_reporters: tuple[str, ...] = setting(
        "metric.reporters",
        LIST,
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "Classes that report metrics. Moldau serves its metrics at moldau.metrics.port instead.",
        importance=LOW,
        mode=CLUSTER_WIDE,
    )
    metrics_num_samples: int = setting(
        "metrics.num.samples",
        INT,
        2,
        "How many samples a metric keeps.",
        check=at_least(1),
        importance=LOW,
    )
    metrics_recording_level: str = setting(
        "metrics.recording.level",
        STRING,
        "INFO",
        "How detailed metrics are.",
        importance=LOW,
    )
    metrics_sample_window_ms: int = setting(
        "metrics.sample.window.ms",
        LONG,
        30_000,
        "How long one sample of a metric lasts.",
        check=at_least(1),
        importance=LOW,
    )
    num_partitions: int = setting(
        "num.partitions",
        INT,
        1,
        "How many partitions a topic gets if its creator does not set a number.",
        check=at_least(1),
        has_effect=True,
    )
    telemetry_max_bytes: int = setting(
        "telemetry.max.bytes",
        INT,
        MIB,
        "The largest metrics push of a client.",
        check=at_least(1),
        importance=LOW,
    )
