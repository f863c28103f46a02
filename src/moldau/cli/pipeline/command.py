"""`moldau pipeline`: write, check, test, run, watch, stop, replay and reset a pipeline."""

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

app = new_app(help="Pipelines on Spark, written in Python or YAML.", no_args_is_help=True)

_File = Annotated[Path, typer.Argument(metavar="FILE", help="A .py or .yaml file.")]
_Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap", "-b", metavar="HOST:PORT", show_default=False,
        help="Brokers, in place of those that the file names; "
        f"{BOOTSTRAP_VARIABLE} is for files that name none.",
    ),
]  # fmt: skip
_Master = Annotated[
    str, typer.Option(help="Where Spark runs: local[*], spark://host:port, yarn, k8s://…")
]
_Conf = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark's.")
]
_PyFiles = Annotated[
    str | None, typer.Option("--py-files", help="Python files for the tasks, with commas.")
]
_Env = Annotated[
    str | None,
    typer.Option(
        "--env",
        metavar="FILE|URL",
        help="A packed environment for the tasks, .tar.gz.",
        show_default=False,
    ),
]
_Checkpoint = Annotated[
    str | None,
    typer.Option(
        "--checkpoint", metavar="FOLDER|URL", help="Keep the state here.", show_default=False
    ),
]
_DEFAULT_MASTER = "local[*]"
_QUICK_MASTER = "local[1]"


@app.command("init", no_args_is_help=True)
def init(file: _File) -> None:
    """Write a pipeline to begin with.

    [bold]Examples[/]

      moldau pipeline init orders.yaml

      moldau pipeline init orders.py
    """
    from moldau.pipelines.declare import templates

    known = {".py": templates.PYTHON, ".yaml": templates.YAML, ".yml": templates.YAML}
    if file.suffix not in known:
        raise MoldauError(f"{file}: a pipeline is a .py or a .yaml file")
    if file.exists():
        raise MoldauError(f"{file} is there already")
    file.write_text(known[file.suffix].format(name=file.stem, file=file.name))
    typer.echo(f"{file} is written; next: moldau pipeline test {file}")


@app.command("check", no_args_is_help=True)
def check(file: _File, checkpoint: _Checkpoint = None, as_json: AsJson = False) -> None:
    """Analyse every plan, without data and without a broker, and whether a checkpoint fits it."""
    _need_packages()
    from moldau.pipelines.compile.checking import check_plans
    from moldau.pipelines.run.session import new_session

    pipeline, folder = _loaded(file, None, checkpoint)
    session = new_session(pipeline.name, _QUICK_MASTER, {})
    queries = check_plans(session, pipeline, folder)
    if as_json:
        names = ("query", "sources", "targets", "mode")
        rows = [(one.name, one.sources, one.targets, one.output_mode) for one in queries]
        show_json([dict(zip(names, row, strict=True)) for row in rows])
        return
    show_table(
        ("query", "reads", "writes", "mode"),
        [
            (one.name, ", ".join(one.sources), ", ".join(one.targets), one.output_mode)
            for one in queries
        ],
    )
    typer.echo(f"{file} is well; delivery {pipeline.delivery}; {_brokers_text(pipeline)}")


@app.command("test", no_args_is_help=True)
def test(file: _File) -> None:
    """Run the tests that are written beside the flows."""
    _need_packages()
    from moldau.pipelines import load
    from moldau.pipelines.compile.examples import try_example
    from moldau.pipelines.run.session import new_session

    pipeline = load(file)
    if not pipeline.examples:
        raise MoldauError(f"{file} has no tests")
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
def run(  # noqa: PLR0913 - what a run can be told
    file: _File,
    bootstrap: _Bootstrap = None,
    master: _Master = _DEFAULT_MASTER,
    once: Annotated[bool, typer.Option("--once", help="Do what is there, then end.")] = False,
    conf: _Conf = None,
    py_files: _PyFiles = None,
    env: _Env = None,
    checkpoint: _Checkpoint = None,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", help="Serve /metrics here; 0: on a free port.")
    ] = None,
    metrics_host: Annotated[str, typer.Option(help="Who may ask: 0.0.0.0 for all.")] = "127.0.0.1",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a line of JSON for each change, for scripts.")
    ] = False,
    tied: Annotated[bool, typer.Option("--tied", hidden=True)] = False,
) -> None:
    """Run a pipeline until Ctrl-C; a second run goes on where it was.

    [bold]Examples[/]

      moldau pipeline run orders.yaml --once

      moldau pipeline run orders.py --master spark://host:7077 --env env.tar.gz

      moldau pipeline run orders.yaml --json --metrics-port 9464
    """
    _need_packages()
    from moldau.cli.pipeline.view import view
    from moldau.pipelines.run.metrics import served_metrics
    from moldau.pipelines.run.session import new_session

    if tied:
        end_with_stdin()

    pipeline, folder = _loaded(file, bootstrap, checkpoint)
    settings = _spark_settings(conf, py_files, env, master)
    with folder.held(), view(pipeline.name, as_json=as_json) as show:

        def tell(phase: str) -> None:
            folder.tell_phase(pipeline.name, phase)
            show.phase(phase)

        # Before Spark, which takes long to start.
        _look_for_topics(pipeline, tell)
        tell(f"starting Spark at {master}")
        session = new_session(pipeline.name, master, settings, checkpoint=folder.checkpoint)
        try:
            running = _stoppable(session, pipeline, folder, master)
            with served_metrics(pipeline.name, metrics_host, metrics_port, _tell_address) as count:

                def both(found: "list[QueryProgress]") -> None:
                    count(found)
                    show(found)

                running.run(once=once, show=both, tell=tell)
        finally:
            session.stop()
    typer.echo("stopped; the next run goes on from here", err=as_json)


def _look_for_topics(pipeline: "Pipeline", tell: "Callable[[str], None]") -> None:
    """Says what is not as the file says."""
    from moldau.pipelines.compile.topics import ensure_topics

    _complain(_brokers_text(pipeline))
    tell("looking for topics")
    for difference in ensure_topics(pipeline):
        _complain(f"{difference}; it stays as it is")


def _stoppable(session: Any, pipeline: "Pipeline", folder: "RunFolder", master: str) -> "Running":
    """A run that signals end between two batches."""
    from moldau.pipelines.run.cluster import ask_tasks, is_local
    from moldau.pipelines.run.runner import Running

    shares_disk = is_local(master) or ask_tasks(session, str(folder.path), _complain)
    running = Running(session, pipeline, folder, shares_disk=shares_disk)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: running.stop())
    return running


def _complain(line: str) -> None:
    typer.echo(line, err=True)


@app.command("status", no_args_is_help=True)
def status(file: _File, checkpoint: _Checkpoint = None, as_json: AsJson = False) -> None:
    """Say how a pipeline goes, from outside."""
    from moldau.cli.pipeline.view import show_status

    pipeline, folder = _loaded(file, None, checkpoint)
    found = folder.status()
    if as_json:
        show_json({"name": pipeline.name, **found, "running": folder.is_running})
    elif not found:
        typer.echo(f"{pipeline.name} has never run")
    else:
        show_status(found)


@app.command("stop", no_args_is_help=True)
def stop(file: _File, checkpoint: _Checkpoint = None) -> None:
    """Ask a running pipeline to end after its batch."""
    pipeline, folder = _loaded(file, None, checkpoint)
    if not folder.ask_to_stop():
        raise MoldauError(f"{pipeline.name} does not run")
    typer.echo(f"{pipeline.name} ends after its batch")


@app.command("replay", no_args_is_help=True)
def replay(  # noqa: PLR0913 - what a replay can be told
    file: _File,
    start: Annotated[str | None, typer.Option("--from", help="A time like 2026-11-01.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="A time; the latest otherwise.")] = None,
    into: Annotated[str, typer.Option(help="Behind the names of targets.")] = ".replay",
    bootstrap: _Bootstrap = None,
    master: _Master = _DEFAULT_MASTER,
    conf: _Conf = None,
    py_files: _PyFiles = None,
    env: _Env = None,
) -> None:
    """Run the flows over a range of time, as one batch, into targets of other names."""
    _need_packages()
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
    """Forget where a pipeline is: the next run begins where its sources say."""
    pipeline, folder = _loaded(file, None, checkpoint)
    if folder.is_running:
        raise MoldauError(f"{pipeline.name} runs; stop it first")
    if folder.is_here and not folder.path.exists():
        raise MoldauError(f"{pipeline.name} has no state at {folder.path}")
    place = folder.path if folder.is_here else folder.checkpoint
    confirm(f"Delete {place}? What was written stays, and may be written again.", yes=yes)
    if not folder.is_here:
        _forget_url(folder.checkpoint, pipeline.name, _spark_settings(conf, None, None))
    folder.forget()
    typer.echo(f"{pipeline.name} begins anew")


def _need_packages() -> None:
    """Before what imports them, and before the user's file does."""
    from moldau.pipelines.requirements import need_packages

    need_packages()


def _tell_address(address: str) -> None:
    typer.echo(f"metrics at {address}", err=True)


def _forget_url(checkpoint: str, name: str, settings: dict[str, str]) -> None:
    """Only Spark's file systems know it."""
    from moldau.pipelines.run.checkpoint_metadata import CheckpointNotes
    from moldau.pipelines.run.session import new_session

    session = new_session(name, _QUICK_MASTER, settings)
    try:
        if not CheckpointNotes(session, checkpoint).forget():
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
    told = os.environ.get(BOOTSTRAP_VARIABLE)
    if bootstrap is not None:
        known["bootstrap.servers"], origin = bootstrap, "--bootstrap"
    elif "bootstrap.servers" in known or not told:
        origin = pipeline.brokers_from
    else:
        known["bootstrap.servers"], origin = told, BOOTSTRAP_VARIABLE
    pipeline = replace(pipeline, settings=tuple(known.items()), brokers_from=origin)
    return pipeline, folder_of(pipeline, file, checkpoint)


def _brokers_text(pipeline: "Pipeline") -> str:
    from moldau.pipelines.compile.sources import brokers_of

    return f"brokers {brokers_of(pipeline)}, from {pipeline.brokers_from}"


def _spark_settings(
    conf: list[str] | None,
    py_files: str | None,
    env: str | None,
    master: str = _DEFAULT_MASTER,
) -> dict[str, str]:
    from moldau.pipelines.run.cluster import is_local, shipped

    settings = {}
    for pair in conf or []:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise MoldauError(f"--conf {pair}: write NAME=VALUE")
        settings[name] = value
    if env is not None and is_local(master):
        raise MoldauError("--env is for tasks on other machines; name them with --master")
    return settings | shipped(py_files, env)


def _time_ms(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise MoldauError(
            f"'{text}' is no time; write 2026-11-01 or 2026-11-01T12:00:00Z"
        ) from None
    return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)
