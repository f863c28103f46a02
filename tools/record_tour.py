"""Draws docs/images/tour.svg: a terminal that starts a broker, writes records and reads them. The
commands are run, and the picture shows their output.

    python tools/record_tour.py
"""

import os
import pty
import re
import shlex
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "tour.svg"
COLUMNS = 104
ADDRESS = "127.0.0.1:9092"
"""Shown in place of the free port that the recorded broker takes."""
PROGRESS = "━"
"""The character of progress bars, which a terminal shows only for a moment."""
START = "moldau start --ephemeral"
COMMANDS = (
    "moldau topics create orders --partitions 2",
    r"printf 'anna:one beer\nben:two coffees\ncarla:tea\n' | moldau produce orders -k :",
    "moldau consume orders --group billing --keys",
    "moldau groups describe billing",
)


def main() -> None:
    screen = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    start = [*shlex.split(START), "--port", "0", "--log-level", "error"]
    with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as node:
        try:
            assert node.stdout is not None
            line = node.stdout.readline()
            address = line.split()[3]
            show(screen, f"{START} &", line.replace(address, ADDRESS))
            for command in COMMANDS:
                show(screen, command, output_of(command, address))
        finally:
            node.terminate()
    svg = screen.export_svg(title="moldau", unique_id="tour")
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(without_fonts(svg), encoding="utf-8")


def show(screen: Console, command: str, output: str) -> None:
    screen.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
    for line in map(Text.from_ansi, output.splitlines()):
        if line.plain.strip() and PROGRESS not in line.plain:
            screen.print(line)
    screen.print()


def output_of(command: str, address: str) -> str:
    """The output of the command on a terminal."""
    main_end, command_end = pty.openpty()
    environment = {**os.environ, "MOLDAU_BOOTSTRAP": address, "COLUMNS": str(COLUMNS)}
    with subprocess.Popen(
        command, shell=True, env=environment, stdout=command_end, stderr=command_end
    ) as process:
        os.close(command_end)
        found = bytearray()
        while True:
            try:
                part = os.read(main_end, 65536)
            except OSError:  # Linux's way to say that the other end is closed.
                part = b""
            if not part:
                break
            found += part
    os.close(main_end)
    if process.returncode:
        sys.exit(f"{command}: {found.decode()}")
    return found.decode()


def without_fonts(svg: str) -> str:
    """Rich loads a font from a web server; a picture in a repository uses the reader's."""
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


if __name__ == "__main__":
    main()
