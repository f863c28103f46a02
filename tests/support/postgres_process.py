"""A real PostgreSQL server for tests: on loopback, in a folder of its own, not run as root."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.missing import skip_except_in_ci
from support.running_node import free_port

PASSWORD = "not-a-secret-of-anybody"
_NEEDS = "these tests need PostgreSQL's server (Debian: apt-get install postgresql)"


def _programs() -> Path:
    """The folder of initdb and pg_ctl; without them tests are skipped, except in CI."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("pg_ctl")
    if found is not None:
        places.append(Path(found).resolve().parent)
    complete = [one for one in places if (one / "initdb").exists() and (one / "pg_ctl").exists()]
    if not complete:
        skip_except_in_ci(_NEEDS)
    return complete[0]


class PostgresProcess:
    """Its superuser is `boss`; connections need a password."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self.port = free_port()
        self.url = self.url_for("boss")
        # PostgreSQL refuses to run as root.
        self._user = "nobody" if os.getuid() == 0 else None
        if self._user is not None:
            entry = pwd.getpwnam(self._user)
            os.chown(folder, entry.pw_uid, entry.pw_gid)

    def url_for(self, user: str) -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/postgres"

    def _call(self, program: str, *words: str) -> None:
        command = [str(self._programs / program), *words]
        with (self._folder.parent / f"{self._folder.name}.out").open("ab") as out:
            done = subprocess.run(
                command,
                cwd="/",
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                user=self._user,
                group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
                extra_groups=None if self._user is None else [],
                check=False,
            )
        assert done.returncode == 0, f"{command}: {self.log()}"

    def log(self) -> str:
        parts = [self._folder.parent / f"{self._folder.name}.out", self._folder / "log"]
        return "\n".join(part.read_text() for part in parts if part.exists())[-3000:]

    def initialise(self) -> None:
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        data = str(self._folder / "data")
        words = ["-A", "scram-sha-256", "--pwfile", str(secret), "-E", "UTF8", "--no-sync"]
        self._call("initdb", "-D", data, "-U", "boss", *words)

    def start(self) -> None:
        settings = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
        }
        options = " ".join(f"-c {name}='{value}'" for name, value in settings.items())
        log = str(self._folder / "log")
        words = ["-l", log, "-w", "-t", "300", "-o", options, "start"]
        self._call("pg_ctl", "-D", str(self._folder / "data"), *words)

    def stop(self, how: str = "immediate") -> None:
        words = ["-m", how, "-w", "-t", "300", "stop"]
        self._call("pg_ctl", "-D", str(self._folder / "data"), *words)

    @contextmanager
    def connected(self) -> Iterator[Any]:
        import psycopg

        with psycopg.connect(self.url, password=PASSWORD, autocommit=True) as connection:
            yield connection

    def rows(self, statement: Any, *values: Any) -> list[Any]:
        with self.connected() as connection:
            found = connection.execute(statement, values or None)
            return list(found.fetchall()) if found.description else []


@contextmanager
def postgres_server() -> Iterator[PostgresProcess]:
    programs = _programs()
    # Not below pytest's own folder, which other users cannot enter.
    with tempfile.TemporaryDirectory(prefix="moldau-postgres-") as folder:
        Path(folder).chmod(0o755)
        server_folder = Path(folder) / "server"
        server_folder.mkdir()
        server = PostgresProcess(programs, server_folder)
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()
