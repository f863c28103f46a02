"""The functions of a pipeline's file that declare flows, tests and settings of the pipeline. Each
declaration keeps the line of its call.
"""

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar

from moldau.core.pipelines.graph import (
    Delivery,
    Example,
    Expectation,
    Flow,
    Mode,
    OnError,
    Postgres,
    Spot,
    Sql,
    Table,
    Target,
    Topic,
    Trigger,
)
from moldau.core.pipelines.sql_inputs import tables_in
from moldau.frozen import frozen
from moldau.pipelines.declare.arguments import (
    Expected,
    expectations_of,
    pipeline_error,
    trigger_of,
    word_of,
)
from moldau.pipelines.declare.calls import checked
from moldau.pipelines.declare.formats import pairs_of
from moldau.pipelines.declare.source_locations import caller

FLOW_MARK = "__moldau_flow__"
Function = TypeVar("Function", bound=Callable[..., Any])


@frozen(kw_only=True)
class Settings:
    """Settings of a whole pipeline, as `mp.pipeline` declares them."""

    spot: Spot
    name: str | None = None
    delivery: Delivery = Delivery.EXACTLY_ONCE
    trigger: Trigger = Trigger()
    settings: tuple[tuple[str, str], ...] = ()
    brokers_spot: Spot | None = None
    """The line that sets bootstrap.servers."""
    checkpoint: str | None = None


@frozen
class SqlFlow:
    """A flow in SQL. Its name is that of the variable it is assigned to."""

    flow: Flow


@checked
def flow(
    *,
    into: Target | None = None,
    mode: str = "append",
    on_error: str | None = None,
    expect: Expected = None,
) -> Callable[[Function], Function]:
    """Declares a function as a flow and returns it unchanged. For use as a decorator.

    The function gets Spark data frames, and returns one. The names of its arguments are those of
    sources, lookups or other flows.

    Args:
        into: The target: `mp.topic(…)`, `mp.table(…)` or `mp.postgres(…)`. Without one the flow
            only feeds other flows.
        mode: `"append"`, `"upsert"` (rows replace those with the same key) or `"complete"` (each
            micro-batch replaces the whole result).
        on_error: What to do with rows that do not meet `expect`, or that have a text in their
            column `_error`: `"fail"`, `"drop"` or `"dead_letter"`.
        expect: Conditions in Spark SQL that every row must meet, by name.

    Returns:
        The decorator.

    Raises:
        PipelineError: An argument is invalid.

    Example:
        ```python
        @mp.flow(into=mp.topic("orders.big", key="user"))
        def big(orders):
            return orders.where("amount > 100")
        ```
    """
    spot = caller()
    target = _target_of(into, spot)
    chosen = word_of(Mode, mode, "mode", spot)
    expected = expectations_of(expect, spot)
    reaction = reaction_of(on_error, expected, spot)

    def mark(function: Function) -> Function:
        made = Flow(
            name=function.__name__,
            inputs=tuple(signature(function).parameters),
            body=function,
            spot=spot,
            into=target,
            mode=chosen,
            on_error=reaction,
            expect=expected,
        )
        setattr(function, FLOW_MARK, made)
        return function

    return mark


def reaction_of(word: str | None, expected: tuple[Expectation, ...], spot: Spot) -> OnError | None:
    """Decides how a step handles bad rows. Without `on_error`, rows that fail an expectation are an
    error.
    """
    if word is not None:
        return word_of(OnError, word, "on_error", spot)
    return OnError.FAIL if expected else None


def _target_of(into: object, spot: Spot) -> Target | None:
    if into is None or isinstance(into, Topic | Table | Postgres):
        return into
    raise pipeline_error(
        spot, f"into must be mp.topic(…), mp.table(…) or mp.postgres(…), not {into!r}"
    )


@checked
def sql(
    text: str,
    *,
    into: Target | None = None,
    mode: str = "append",
    on_error: str | None = None,
    expect: Expected = None,
) -> SqlFlow:
    """Declares a flow in Spark SQL. Its name is that of the variable it is assigned to.

    Args:
        text: The query. Its tables are sources, lookups or other flows.
        into: The target: `mp.topic(…)`, `mp.table(…)` or `mp.postgres(…)`. Without one the flow
            only feeds other flows.
        mode: `"append"`, `"upsert"` (rows replace those with the same key) or `"complete"` (each
            micro-batch replaces the whole result).
        on_error: What to do with rows that do not meet `expect`, or that have a text in their
            column `_error`: `"fail"`, `"drop"` or `"dead_letter"`.
        expect: Conditions in Spark SQL that every row must meet, by name.

    Returns:
        The declared flow.

    Raises:
        PipelineError: An argument is invalid.

    Example:
        ```python
        big = mp.sql("SELECT * FROM orders WHERE amount > 100", into=mp.topic("orders.big"))
        ```
    """
    spot = caller()
    expected = expectations_of(expect, spot)
    made = Flow(
        name="",
        inputs=tables_in(text),
        body=Sql(text, spot),
        spot=spot,
        into=_target_of(into, spot),
        mode=word_of(Mode, mode, "mode", spot),
        on_error=reaction_of(on_error, expected, spot),
        expect=expected,
    )
    return SqlFlow(made)


@checked
def pipeline(
    name: str | None = None,
    *,
    delivery: str = "exactly_once",
    trigger: str | None = None,
    settings: Mapping[str, str] | None = None,
    checkpoint: str | Path | None = None,
    spot: Spot | None = None,
) -> Settings:
    """Declares settings of the whole pipeline. A file without it uses the defaults.

    Args:
        name: The pipeline's name (default: that of its file).
        delivery: `"exactly_once"` or `"at_least_once"`.
        trigger: Time between micro-batches, such as `"1s"`, or `"available_now"` to process the
            available data and stop (default: as fast as possible).
        settings: Settings of the Kafka client, such as `bootstrap.servers`.
        checkpoint: The folder or URL of the checkpoint (default: beside the file).
        spot: The line of the declaration. Set by the reader of YAML files.

    Returns:
        The declared settings.

    Raises:
        PipelineError: An argument is invalid.

    Example:
        ```python
        settings = mp.pipeline("shop", settings={"bootstrap.servers": "localhost:9092"})
        ```
    """
    spot = spot or caller()
    return Settings(
        spot=spot,
        name=name,
        delivery=word_of(Delivery, delivery, "delivery", spot),
        trigger=trigger_of(trigger, spot),
        settings=pairs_of(settings or {}),
        brokers_spot=spot if "bootstrap.servers" in (settings or {}) else None,
        checkpoint=None if checkpoint is None else str(checkpoint),
    )


@checked
def example(
    name: str,
    given: Mapping[str, Sequence[Mapping[str, Any]]],
    expect: Mapping[str, Sequence[Mapping[str, Any]]],
) -> Example:
    """Declares a test for `moldau pipeline test`: it runs in one batch, without a broker.

    Args:
        name: A sentence that says what holds.
        given: Rows of sources and lookups, by name.
        expect: The rows that flows must produce, by name, in any order. Columns that a row does not
            name may have any value.

    Returns:
        The declared test.

    Example:
        ```python
        small_orders = mp.example(
            "small orders are left out",
            given={"orders": [{"id": 1, "amount": 5}, {"id": 2, "amount": 500}]},
            expect={"big": [{"id": 2}]},
        )
        ```
    """
    return Example(name, _rows(given), _rows(expect), caller())


def _rows(
    datasets: Mapping[str, Sequence[Mapping[str, Any]]],
) -> dict[str, list[dict[str, Any]]]:
    return {name: [dict(row) for row in rows] for name, rows in datasets.items()}
