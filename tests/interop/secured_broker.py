"""Apache Kafka with every kind of secured listener, and certificates for them, generated for each
run. None of them is a secret.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from interop.apache import ApacheOracle, require_tool
from interop.live_broker import CLUSTER_ID, NODE_ID, LiveBroker, free_ports

USER, PASSWORD = "alice", "alice's \\ sésame"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
# Listener -> its protocol. MUTUAL requires a client certificate, BRIEF frequent reauthentication.
PROTOCOLS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "LOGIN": "SASL_PLAINTEXT",
    "BRIEF": "SASL_PLAINTEXT",
    "BOTH": "SASL_SSL",
}
BRIEF_MS = 2500
KEY_PASSWORD = "of-the-key"


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM files. The broker's certificate is valid for the name localhost only."""

    authority: Path
    broker: Path
    client_certificate: Path
    client_key: Path
    client_locked_key: Path
    stranger: Path


def _openssl(*arguments: str) -> None:
    subprocess.run([require_tool("openssl"), *arguments], check=True, capture_output=True)


def _key_and_request(folder: Path, name: str) -> None:
    _openssl(
        *("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"),
        *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.csr")),
    )


def _authority(folder: Path, name: str) -> Path:
    certificate = folder / f"{name}.pem"
    _openssl(
        *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-days", "2"),
        *("-keyout", str(folder / f"{name}.key"), "-out", str(certificate)),
    )
    return certificate


def _sign(folder: Path, name: str, authority: str, extensions: str) -> Path:
    _key_and_request(folder, name)
    (folder / f"{name}.ext").write_text(extensions)
    certificate = folder / f"{name}.pem"
    _openssl(
        *("x509", "-req", "-in", str(folder / f"{name}.csr"), "-days", "2", "-set_serial", "7"),
        *("-CA", str(folder / f"{authority}.pem"), "-CAkey", str(folder / f"{authority}.key")),
        *("-extfile", str(folder / f"{name}.ext"), "-out", str(certificate)),
    )
    return certificate


def make_certificates(folder: Path) -> Certificates:
    authority = _authority(folder, "authority")
    stranger = _authority(folder, "stranger")
    broker = _sign(folder, "broker", "authority", "subjectAltName=DNS:localhost\n")
    client = _sign(folder, "client", "authority", "extendedKeyUsage=clientAuth\n")
    together = folder / "broker-together.pem"
    together.write_text((folder / "broker.key").read_text() + broker.read_text())
    locked = folder / "client-locked.key"
    _openssl(
        *("pkcs8", "-topk8", "-in", str(folder / "client.key"), "-out", str(locked)),
        *("-v2", "aes-256-cbc", "-passout", f"pass:{KEY_PASSWORD}"),
    )
    return Certificates(authority, together, client, folder / "client.key", locked, stranger)


class SecuredBroker(LiveBroker):
    def __init__(self, apache: ApacheOracle, folder: Path, certificates: Certificates) -> None:
        self.ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
        super().__init__(apache, folder, _settings(certificates))
        secured = [(name, f"{name}://{{}}:{port}") for name, port in self.ports.items()]
        plain = f"PLAINTEXT://{self.address},CONTROLLER://{self.controller_address}"
        listeners = ",".join([plain, *(place.format("127.0.0.1") for _, place in secured)])
        advertised = ",".join([plain, *(place.format("localhost") for _, place in secured)])
        with self.properties.open("a", encoding="utf-8") as file:
            file.write(f"listeners={listeners}\nadvertised.listeners={advertised}\n")

    def secured_address(self, listener: str, host: str = "localhost") -> str:
        return f"{host}:{self.ports[listener]}"

    def format(self) -> None:
        arguments = ["format", "-t", CLUSTER_ID, "-c", str(self.properties), "--standalone"]
        for mechanism in MECHANISMS[1:]:
            arguments += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
        run = self._apache.run_tool("kafka.tools.StorageTool", *arguments)
        assert run.status == 0, run


def _settings(certificates: Certificates) -> Mapping[str, str]:
    settings = {
        "node.id": str(NODE_ID),
        "listener.security.protocol.map": ",".join(
            [
                "CONTROLLER:PLAINTEXT",
                "PLAINTEXT:PLAINTEXT",
                *(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
            ]
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.authority),
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
    }
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    # A property file removes one backslash, JAAS the other.
    secret = PASSWORD.replace("\\", "\\" * 4).replace("é", "\\u00e9")
    for listener, protocol in PROTOCOLS.items():
        if protocol.startswith("SASL"):
            prefix = f"listener.name.{listener.lower()}"
            settings[f"{prefix}.plain.sasl.jaas.config"] = f'{plain} user_{USER}="{secret}";'
            for mechanism in MECHANISMS[1:]:
                settings[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = scram
    for mechanism in MECHANISMS:
        name = f"listener.name.brief.{mechanism.lower()}.connections.max.reauth.ms"
        settings[name] = str(BRIEF_MS)
    return settings
