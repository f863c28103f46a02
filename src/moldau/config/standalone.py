"""The settings of a node that starts without a server.properties: broker and controller in one
node, reachable from this machine only.
"""

NODE_ID = 1
CLIENT_LISTENER = "PLAINTEXT"
CONTROLLER_LISTENER = "CONTROLLER"
LOOPBACK = ("127.0.0.1", "::1")


def standalone_properties(log_dir: str, *, host: str, port: int) -> dict[str, str]:
    """Port 0 selects a free one. The controller is reachable only from this machine, even if the
    broker is not. Internal topics have one replica, and groups rebalance without the initial delay.
    """
    client = _bracketed(host)
    controller = _bracketed(host if host in LOOPBACK else LOOPBACK[0])
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "log.dirs": log_dir,
        "listeners": (
            f"{CLIENT_LISTENER}://{client}:{port},{CONTROLLER_LISTENER}://{controller}:0"
        ),
        "controller.listener.names": CONTROLLER_LISTENER,
        "listener.security.protocol.map": (
            f"{CLIENT_LISTENER}:PLAINTEXT,{CONTROLLER_LISTENER}:PLAINTEXT"
        ),
        "controller.quorum.bootstrap.servers": f"{controller}:0",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
