"""Metadata that is stored with a pipeline's checkpoints: its start offsets and the state of its
flows. It works on every file system that Spark can keep a checkpoint on.
"""

import json
from typing import Any

from moldau.connectors.tables.hadoop_files import HadoopFileSystem
from moldau.protocol.errors import MoldauError


class CheckpointMetadata:
    """JSON documents in a pipeline's checkpoint, which is given as a URL."""

    def __init__(self, session: Any, checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._disk = HadoopFileSystem(session)

    def read(self, name: str) -> dict[str, Any]:
        path = self._path(name)
        try:
            content = json.loads(self._disk.read(path) or "{}")
        except ValueError:
            raise MoldauError(f"{path} is damaged") from None
        except Exception as error:  # noqa: BLE001 - py4j's own kinds
            raise self._unreachable(error) from None
        return content if isinstance(content, dict) else {}

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Replaces the document atomically."""
        try:
            self._disk.replace(self._path(name), json.dumps(content, indent=1))
        except Exception as error:  # noqa: BLE001 - py4j's own kinds
            raise self._unreachable(error) from None

    def forget(self) -> bool:
        """Deletes the checkpoints with the metadata. Returns False if there were none."""
        try:
            return self._disk.delete(self._checkpoint)
        except Exception as error:  # noqa: BLE001 - py4j's own kinds
            raise self._unreachable(error) from None

    def _path(self, name: str) -> str:
        return f"{self._checkpoint}/moldau/{name}"

    def _unreachable(self, error: Exception) -> MoldauError:
        cause = getattr(error, "java_exception", None)
        lines = str(cause or error).splitlines()
        return MoldauError(
            f"checkpoint {self._checkpoint} cannot be used: {lines[0] if lines else error!r}"
        )
