"""The format of a node's log: readable lines, or a JSON object per line."""

import json
import logging
import sys
import time

from moldau.cli.shared.escaping import printable


class ReadableFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%H:%M:%S", time.localtime(record.created))
        where = record.name.removeprefix("moldau.")
        # The text may hold what clients sent, which must not control the terminal.
        text = printable(record.getMessage(), keep="\t")
        line = f"{when}.{int(record.msecs):03d} {record.levelname:<7} {where}: {text}"
        if record.exc_info:
            line += "\n" + printable(self.formatException(record.exc_info), keep="\n\t")
        return line


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": round(record.created, 3),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def set_up_logs(log_format: str, level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else ReadableFormatter())
    root = logging.getLogger("moldau")
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False
