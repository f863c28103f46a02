"""The options `kafka.*` configure TLS and SASL, as those of Spark's own connector do."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from interop.apache import ApacheOracle
from interop.secured_broker import PASSWORD, USER, Certificates, SecuredBroker, make_certificates
from pyspark.sql.datasource import CaseInsensitiveDict
from spark.rows import read_parts, schema, values

from moldau.protocol.errors import MoldauError
from pyspark_moldau import DefaultSource

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def broker(
    apache: ApacheOracle, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecuredBroker]:
    with SecuredBroker(apache, tmp_path_factory.mktemp("secured"), certificates) as node:
        node.format()
        node.start()
        yield node


def source(address: str, **options: str) -> DefaultSource:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return DefaultSource(CaseInsensitiveDict({"kafka.bootstrap.servers": address} | given))


def write_and_read(address: str, topic: str, security: dict[str, str]) -> list[bytes]:
    writer = source(address, topic=topic, **security).writer(schema("value string"), False)
    writer.write(iter([pa.RecordBatch.from_pydict({"value": ["a", "b"]})]))
    found = source(address, subscribe=topic, **security)
    reader = found.reader(found.schema())
    return values(read_parts(reader, reader.partitions()))


def test_tls(broker: SecuredBroker, certificates: Certificates) -> None:
    broker.create_topic("tls")
    security = {
        "kafka__security__protocol": "SSL",
        "kafka__ssl__truststore__location": str(certificates.authority),
        "kafka__ssl__truststore__type": "PEM",
    }
    assert write_and_read(broker.secured_address("TLS"), "tls", security) == [b"a", b"b"]


def test_sasl_as_java_clients_write_it(broker: SecuredBroker) -> None:
    broker.create_topic("sasl")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    # JAAS treats a backslash as an escape.
    secret = PASSWORD.replace("\\", "\\" * 2)
    security = {
        "kafka__security__protocol": "SASL_PLAINTEXT",
        "kafka__sasl__mechanism": "PLAIN",
        "kafka__sasl__jaas__config": (f'{module} required username="{USER}" password="{secret}";'),
    }
    assert write_and_read(broker.secured_address("LOGIN"), "sasl", security) == [b"a", b"b"]
    security["kafka__sasl__jaas__config"] = f'{module} required username="{USER}" password="no";'
    found = source(broker.secured_address("LOGIN"), subscribe="sasl", **security)
    with pytest.raises(MoldauError) as caught:
        found.reader(found.schema()).partitions()
    assert "\n" not in str(caught.value)
