"""The settings of a node that is started without a server.properties: one node that is broker and
controller, reachable from this machine only.
"""

NODE_ID = 1
CLIENT_LISTENER = "PLAINTEXT"
CONTROLLER_LISTENER = "CONTROLLER"


def standalone_properties(log_dir: str, *, host: str, port: int) -> dict[str, str]:
    """Port 0 takes a free one. Internal topics have the one replica that there can be, and a group
    does not wait for members that nobody has started.
    """
    shown = f"[{host}]" if ":" in host else host
    return {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "log.dirs": log_dir,
        "listeners": f"{CLIENT_LISTENER}://{shown}:{port},{CONTROLLER_LISTENER}://{shown}:0",
        "controller.listener.names": CONTROLLER_LISTENER,
        "listener.security.protocol.map": (
            f"{CLIENT_LISTENER}:PLAINTEXT,{CONTROLLER_LISTENER}:PLAINTEXT"
        ),
        "controller.quorum.bootstrap.servers": f"{shown}:0",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
