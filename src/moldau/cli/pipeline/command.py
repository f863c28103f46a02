"""`moldau pipeline`: writes, checks, tests, runs, watches, stops, replays and resets a pipeline."""

import os
import signal
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.lazy_commands import new_app
from moldau.cli.pipeline.exit_with_parent import end_with_stdin
from moldau.cli.shared.connection import BOOTSTRAP_VARIABLE
from moldau.cli.shared.output import AsJson, Yes, confirm, show_json, show_table
from moldau.protocol.errors import MoldauError

if TYPE_CHECKING:
    from collections.abc import Callable

    from moldau.core.pipelines.graph import Pipeline
    from moldau.core.pipelines.query_progress import QueryProgress
    from moldau.pipelines.run.run_folder import RunFolder
    from moldau.pipelines.run.runner import Running

app = new_app(help="Run pipelines on Spark, written in Python or YAML.", no_args_is_help=True)

_File = Annotated[Path, typer.Argument(metavar="FILE", help="Pipeline file, .py or .yaml.")]
_Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", "-b", metavar="HOST:PORT", show_default=False,
        help="Brokers; overrides those in the file. "
        f"{BOOTSTRAP_VARIABLE} applies if the file names none.",
    ),
]  # fmt: skip
_Master = Annotated[
    str, typer.Option(help="Spark master: local[*], spark://host:port, yarn, k8s://…")
]
_Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="Spark setting; repeatable."),
]
_PyFiles = Annotated[
    str | None,
    typer.Option("--py-files", help="Python files for the tasks, separated by commas."),
]
_Env = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="FILE|URL",
        help="Packed Python environment for the tasks (.tar.gz).",
        show_default=False,
    ),
]
_Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint",
        metavar="FOLDER|URL",
        help="Folder or URL of the checkpoint (default: beside FILE).",
        show_default=False,
    ),
]
_DEFAULT_MASTER = "local[*]"
_QUICK_MASTER = "local[1]"


@app.command("init", no_args_is_help=True)
def init(file: _File) -> None:
    """Write an example pipeline to start from.

    [bold]Examples[/]

      moldau pipeline init orders.yaml

      moldau pipeline init orders.py
    """
    from moldau.pipelines.declare import templates

    known = {".py": templates.PYTHON, ".yaml": templates.YAML, ".yml": templates.YAML}
    if file.suffix not in known:
        raise MoldauError(f"{file}: a pipeline is a .py or a .yaml file")
    if file.exists():
        raise MoldauError(f"{file} already exists; choose another name")
    file.write_text(known[file.suffix].format(name=file.stem, file=file.name))
    typer.echo(f"created {file}; next: moldau pipeline test {file}")


@app.command("check", no_args_is_help=True)
def check(file: _File, checkpoint: _Checkpoint = None, as_json: AsJson = False) -> None:
    """Analyse all query plans without data or brokers, and compare them with the checkpoint."""
    _require_packages()
    from moldau.pipelines.compile.checking import check_plans
    from moldau.pipelines.run.session import new_session

    pipeline, folder = _loaded(file, None, checkpoint)
    session = new_session(pipeline.name, _QUICK_MASTER, {})
    queries = check_plans(session, pipeline, folder)
    if as_json:
        names = ("query", "sources", "targets", "mode")
        rows = [(query.name, query.sources, query.targets, query.output_mode) for query in queries]
        show_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    show_table(
        ("query", "reads", "writes", "mode"),
        [
            (query.name, ", ".join(query.sources), ", ".join(query.targets), query.output_mode)
            for query in queries
        ],
    )
    typer.echo(f"{file} is valid; delivery {pipeline.delivery}; {_brokers_text(pipeline)}")


@app.command("test", no_args_is_help=True)
def test(file: _File) -> None:
    """Run the tests that the pipeline's file declares."""
    _require_packages()
    from moldau.pipelines import load
    from moldau.pipelines.compile.examples import try_example
    from moldau.pipelines.run.session import new_session

    pipeline = load(file)
    if not pipeline.examples:
        raise MoldauError(f"{file} declares no tests")
    session = new_session(pipeline.name, _QUICK_MASTER, {})
    failed = 0
    for example in pipeline.examples:
        outcome = try_example(session, pipeline, example)
        failed += bool(outcome.problems)
        typer.echo(f"{'failed' if outcome.problems else 'passed'}  {example.name}")
        for problem in outcome.problems:
            typer.echo(f"        {example.spot}: {problem}")
    typer.echo(f"{len(pipeline.examples) - failed} passed, {failed} failed")
    if failed:
        raise typer.Exit(1)


@app.command("run", no_args_is_help=True)
def run(  # noqa: PLR0913 - each parameter is an option of the command
    file: _File,
    bootstrap: _Bootstrap = None,
    master: _Master = _DEFAULT_MASTER,
    once: Annotated[
        bool, typer.Option("--once", help="Process the available data, then exit.")
    ] = False,
    conf: _Conf = None,
    py_files: _PyFiles = None,
    env: _Env = None,
    checkpoint: _Checkpoint = None,
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", help="Serve /metrics on this port; 0: a free port."),
    ] = None,
    metrics_host: Annotated[
        str, typer.Option(help="Address to serve /metrics on (0.0.0.0: all interfaces).")
    ] = "127.0.0.1",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON line for each change, for scripts.")
    ] = False,
    tied: Annotated[bool, typer.Option("--tied", hidden=True)] = False,
) -> None:
    """Run a pipeline until Ctrl-C. The next run resumes where this one stopped.

    [bold]Examples[/]

      moldau pipeline run orders.yaml --once

      moldau pipeline run orders.py --master spark://host:7077 --env env.tar.gz

      moldau pipeline run orders.yaml --json --metrics-port 9464
    """
    _require_packages()
    from moldau.cli.pipeline.view import view
    from moldau.pipelines.run.metrics import served_metrics
    from moldau.pipelines.run.session import new_session

    if tied:
        end_with_stdin()

    pipeline, folder = _loaded(file, bootstrap, checkpoint)
    settings = _spark_settings(conf, py_files, env, master)
    with folder.held(), view(pipeline.name, as_json=as_json) as show:

        def on_phase(phase: str) -> None:
            folder.write_phase(pipeline.name, phase)
            show.phase(phase)

        # Before Spark, which is slow to start.
        _ensure_topics(pipeline, on_phase)
        on_phase(f"starting Spark at {master}")
        session = new_session(pipeline.name, master, settings, checkpoint=folder.checkpoint)
        try:
            running = _stoppable(session, pipeline, folder, master)
            with served_metrics(pipeline.name, metrics_host, metrics_port, _print_address) as count:

                def on_progress(progress: "list[QueryProgress]") -> None:
                    count(progress)
                    show(progress)

                running.run(once=once, show=on_progress, report_phase=on_phase)
        finally:
            session.stop()
    typer.echo("stopped; the next run resumes from here", err=as_json)


def _ensure_topics(pipeline: "Pipeline", on_phase: "Callable[[str], None]") -> None:
    """Creates missing topics, and reports topics that differ from the file."""
    from moldau.pipelines.compile.topics import ensure_topics

    _complain(_brokers_text(pipeline))
    on_phase("looking for topics")
    for difference in ensure_topics(pipeline):
        _complain(f"{difference}; it is left unchanged")


def _stoppable(session: Any, pipeline: "Pipeline", folder: "RunFolder", master: str) -> "Running":
    """A run that SIGINT and SIGTERM stop between two batches."""
    from moldau.pipelines.run.masters import is_local
    from moldau.pipelines.run.runner import Running
    from moldau.pipelines.run.task_check import check_tasks

    shares_disk = is_local(master) or check_tasks(session, str(folder.path), _complain)
    running = Running(session, pipeline, folder, shares_disk=shares_disk)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: running.stop())
    return running


def _complain(line: str) -> None:
    typer.echo(line, err=True)


@app.command("status", no_args_is_help=True)
def status(file: _File, checkpoint: _Checkpoint = None, as_json: AsJson = False) -> None:
    """Show a pipeline's status."""
    from moldau.cli.pipeline.view import show_status

    pipeline, folder = _loaded(file, None, checkpoint)
    recorded = folder.status()
    if as_json:
        show_json({"name": pipeline.name, **recorded, "running": folder.is_running})
    elif not recorded:
        typer.echo(f"{pipeline.name} has never run")
    else:
        show_status(recorded)


@app.command("stop", no_args_is_help=True)
def stop(file: _File, checkpoint: _Checkpoint = None) -> None:
    """Stop a running pipeline after its current batch."""
    pipeline, folder = _loaded(file, None, checkpoint)
    if not folder.request_stop():
        raise MoldauError(f"{pipeline.name} is not running")
    typer.echo(f"{pipeline.name} stops after its current batch")


@app.command("replay", no_args_is_help=True)
def replay(  # noqa: PLR0913 - each parameter is an option of the command
    file: _File,
    start: Annotated[
        str | None, typer.Option("--from", help="First time, like 2026-11-01 (default: earliest).")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="End of the range (default: latest).")
    ] = None,
    into: Annotated[str, typer.Option(help="Suffix appended to target names.")] = ".replay",
    bootstrap: _Bootstrap = None,
    master: _Master = _DEFAULT_MASTER,
    conf: _Conf = None,
    py_files: _PyFiles = None,
    env: _Env = None,
) -> None:
    """Run the flows over a range of time, as one batch, into targets with other names."""
    _require_packages()
    from moldau.pipelines.run.replay import renamed
    from moldau.pipelines.run.replay import replay as replay_flows
    from moldau.pipelines.run.session import new_session

    pipeline, _ = _loaded(file, bootstrap, None)
    from_ms, to_ms = (None if text is None else _time_ms(text) for text in (start, end))
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        raise MoldauError(f"--to {end} is not later than --from {start}")
    other = renamed(pipeline, into)
    settings = _spark_settings(conf, py_files, env, master)
    session = new_session(pipeline.name, master, settings)
    try:
        written = replay_flows(session, other, from_ms, to_ms)
    finally:
        session.stop()
    show_table(("target", "rows"), list(written.items()))


@app.command("reset", no_args_is_help=True)
def reset(
    file: _File,
    checkpoint: _Checkpoint = None,
    conf: _Conf = None,
    yes: Yes = False,
) -> None:
    """Delete a pipeline's checkpoint: the next run starts where its sources say."""
    pipeline, folder = _loaded(file, None, checkpoint)
    if folder.is_running:
        raise MoldauError(f"{pipeline.name} is running; stop it first")
    if folder.is_here and not folder.path.exists():
        raise MoldauError(f"{pipeline.name} has no state at {folder.path}")
    location = folder.path if folder.is_here else folder.checkpoint
    confirm(f"Delete {location}? Written data stays, and may be written again.", yes=yes)
    if not folder.is_here:
        _forget_url(folder.checkpoint, pipeline.name, _spark_settings(conf, None, None))
    folder.forget()
    typer.echo(f"{pipeline.name} is reset; the next run starts where its sources say")


def _require_packages() -> None:
    """Checks the packages before our own modules or the user's file import them."""
    from moldau.pipelines.run.requirements import require_packages

    require_packages()


def _print_address(address: str) -> None:
    typer.echo(f"metrics at {address}", err=True)


def _forget_url(checkpoint: str, name: str, settings: dict[str, str]) -> None:
    """Deletes a checkpoint on a file system that only Spark knows."""
    from moldau.pipelines.run.checkpoint_metadata import CheckpointMetadata
    from moldau.pipelines.run.session import new_session

    session = new_session(name, _QUICK_MASTER, settings)
    try:
        if not CheckpointMetadata(session, checkpoint).forget():
            raise MoldauError(f"{name} has no state at {checkpoint}")
    finally:
        session.stop()


def _loaded(
    file: Path, bootstrap: str | None, checkpoint: str | None
) -> "tuple[Pipeline, RunFolder]":
    from dataclasses import replace

    from moldau.pipelines import load
    from moldau.pipelines.run.run_folder import folder_of

    pipeline = load(file)
    known = dict(pipeline.settings)
    environment = os.environ.get(BOOTSTRAP_VARIABLE)
    if bootstrap is not None:
        known["bootstrap.servers"], origin = bootstrap, "--bootstrap"
    elif "bootstrap.servers" in known or not environment:
        origin = pipeline.brokers_from
    else:
        known["bootstrap.servers"], origin = environment, BOOTSTRAP_VARIABLE
    pipeline = replace(pipeline, settings=tuple(known.items()), brokers_from=origin)
    return pipeline, folder_of(pipeline, file, checkpoint)


def _brokers_text(pipeline: "Pipeline") -> str:
    from moldau.pipelines.compile.source_options import brokers_of

    return f"brokers {brokers_of(pipeline)}, from {pipeline.brokers_from}"


def _spark_settings(
    conf: list[str] | None,
    py_files: str | None,
    env: str | None,
    master: str = _DEFAULT_MASTER,
) -> dict[str, str]:
    from moldau.pipelines.run.masters import is_local
    from moldau.pipelines.run.task_python import shipped

    settings = {}
    for pair in conf or []:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise MoldauError(f"--conf {pair}: write NAME=VALUE")
        settings[name] = value
    if env is not None and is_local(master):
        raise MoldauError("--env is for tasks on other machines; add --master")
    return settings | shipped(py_files, env)


def _time_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise MoldauError(
            f"'{text}' is not a time; write 2026-11-01 or 2026-11-01T12:00:00Z"
        ) from None
    return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
