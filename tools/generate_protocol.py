"""Writes src/moldau/protocol/{error_codes,api_keys,enums}.py, messages/ and log_records/ from the
facts in protocol/. `--check` changes nothing and fails if the checked-in files are out of date.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.protocol_generator.classes import (  # noqa: E402
    group_by_module,
    is_stored,
    render_index,
    render_module,
)
from tools.protocol_generator.facts import load_messages  # noqa: E402
from tools.protocol_generator.tables import (  # noqa: E402
    render_api_keys,
    render_enums,
    render_error_codes,
)


def generate(facts: Path) -> dict[str, str]:
    """Every generated file by its path below src/moldau/protocol."""
    messages = load_messages(facts / "messages.json")
    files = {
        "error_codes.py": render_error_codes(facts),
        "api_keys.py": render_api_keys(facts, messages),
        "enums.py": render_enums(facts),
    }
    for package, stored in (("messages", False), ("log_records", True)):
        chosen = [message for message in messages if is_stored(message) == stored]
        files[f"{package}/__init__.py"] = render_index(package, chosen)
        for module, members in group_by_module(chosen).items():
            files[f"{package}/{module}.py"] = render_module(members)
    return files


def differences(files: dict[str, str], target: Path) -> list[str]:
    """Paths that are missing, stale or no longer generated."""
    wrong = [
        name
        for name, text in files.items()
        if not (target / name).is_file() or (target / name).read_text(encoding="utf-8") != text
    ]
    for package in ("messages", "log_records"):
        present = {f"{package}/{path.name}" for path in (target / package).glob("*.py")}
        wrong += sorted(present - files.keys())
    return wrong


def write(files: dict[str, str], target: Path) -> None:
    for name in differences(files, target):
        path = target / name
        if name not in files:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files[name], encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare")
    check_only = parser.parse_args().check
    files = generate(ROOT / "protocol")
    target = ROOT / "src/moldau/protocol"
    if check_only:
        wrong = differences(files, target)
        print("\n".join(wrong) or "up to date")
        return 1 if wrong else 0
    write(files, target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
