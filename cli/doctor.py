"""``pg-hashindex doctor``: whether pgvector's indexes serve a table; nothing is installed."""

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from ._shared import (
    ASSUMED,
    NO,
    connected,
    echo,
    facts_options,
    fail_under_option,
    k_option,
    metric_option,
    more_facts,
    note,
    of_database,
    print_json,
    print_table,
    progress,
    queries_from_option,
    queries_option,
    seed_option,
)

if TYPE_CHECKING:
    from pg_hashindex.quality.doctor_findings import Advice, Diagnosis, VectorIndex


# Columns of a terminal.
_WIDTH = 100


@click.command()
@click.argument("table", required=False)
@click.argument("column", required=False)
@k_option
@queries_option(100)
@queries_from_option
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="SQL",
    help="Measure searches among the rows that this holds for too: \"section = 'games'\"; may be "
    "given again.",
)
@metric_option(
    ["l2", "cosine", "ip", "l1"],
    "Distance of exact search.  [default: that of the first index, else cosine]",
)
@facts_options
@click.option("--role", help="Look and measure as this role, under its policies.")
@click.option(
    "--timeout",
    type=float,
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="Seconds after which nothing more is measured.",
)
@seed_option
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="Write one page too, readable without a network, which also shows the indexes of "
    "pg_hashindex on the column, if there are any. Needs the extra html.",
)
@fail_under_option
@of_database
def doctor(
    database_url: str,
    table: str | None,
    column: str | None,
    queries: int,
    queries_from: str | None,
    random_state: int,
    fail_under: float | None,
    html_file: Path | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Say which set of vectors or codes a table needs, if any, and make no change.

    It ends with one decision. COLUMN may be left out where the table has one column of vectors;
    without TABLE it lists all columns of vectors of the database.

    Nothing is installed and nothing written: one read-only transaction compares the HNSW and
    IVFFlat indexes of the column, with several settings, with exact search. That does not
    protect you: the owner of a table can run code as you, so a table of another role is refused.
    """
    from pg_hashindex.quality.doctor import as_role, diagnose

    if table is None:
        given = (queries_from, fail_under, html_file)
        given += tuple(options[name] for name in ("metric", "tenant", "writes", "memory", "role"))
        if options["filters"] or any(value is not None for value in given):
            raise click.UsageError(
                "--filter, --queries-from, --fail-under, --html, --metric, --tenant, --writes, "
                "--memory and --role need a TABLE; without options, doctor lists the columns of "
                "vectors"
            )
        _list_columns(database_url, as_json)
        return
    if html_file is not None:
        from pg_hashindex.operations.page import check_page, look, page, save_page

        check_page(html_file)
    with connected(database_url) as connection, progress("looking at the table"):
        found = diagnose(
            connection,
            table,
            column,
            sample=queries,
            queries=queries_from,
            goal=0.95 if fail_under is None else fail_under,
            random_state=random_state,
            **options,
        )
        looked = None
        if html_file is not None:
            with as_role(connection, options["role"]):
                looked = look(connection, found, queries_from, random_state)
    if as_json:
        print_json(found.as_dict())
    else:
        _print(found)
    for left_out in found.notes:
        note(left_out)
    # After the results, which are there then if the disk is full.
    if html_file is not None and looked is not None:
        save_page(page(found, looked), html_file)
        note(f"wrote {html_file}")
    if fail_under is None:
        return
    worst = found.worst_recall
    if worst is None or worst < fail_under:
        said = "was not measured in time" if worst is None else f"is {worst:.4g}"
        note(f"recall {said}, below the required {fail_under:g}")
        raise click.exceptions.Exit(NO)


def _list_columns(database_url: str, as_json: bool) -> None:
    from pg_hashindex.quality.doctor_catalog import list_columns

    with connected(database_url) as connection:
        columns = list_columns(connection)
    if as_json:
        print_json([column._asdict() for column in columns])
        return
    print_table(
        ["table", "column", "type", "rows", "MB", "indexes"],
        [[*column[:4], column.bytes / 1e6, ", ".join(column.indexes)] for column in columns],
    )
    note(
        "for one of them: pg-hashindex doctor TABLE [COLUMN]" if columns else "no column of vectors"
    )


def _print(found: "Diagnosis") -> None:
    from pg_hashindex.quality.sizes import as_setting, megabytes

    table, memory = found.table, found.memory
    kept = "out of line (TOAST)" if table.toasted else "in their rows"
    pages = "" if table.pages_a_row is None else f", {table.pages_a_row:.2g} pages a comparison"
    dead = "unknown" if table.dead_share is None else f"{table.dead_share:.1%}"
    vacuum = "never" if table.last_vacuum is None else f"{table.last_vacuum:%Y-%m-%d %H:%M}"
    print_table(
        ["", ""],
        [
            [table.kind, f"{table.name}, {table.rows} rows, {table.null_share:.1%} without vector"],
            [
                "vectors",
                f"{table.column} {table.type}({table.dimension})"
                + ("" if table.declared else ", not declared")
                + f", {table.vector_bytes} bytes, storage {table.storage}, {kept}{pages}",
            ],
            [
                "size",
                f"{megabytes(table.heap_bytes)} of rows, {megabytes(table.toast_bytes)} out of "
                f"line, {megabytes(table.index_bytes)} of indexes",
            ],
            ["dead rows", f"{dead}; last vacuum: {vacuum}"],
            [
                "memory",
                ", ".join(f"{name} {as_setting(size)}" for name, size in vars(memory).items()),
            ],
            ["distance", found.metric + (ASSUMED if found.metric_assumed else "")],
            *more_facts(found),
            ["round trip", f"{found.round_trip_ms:.3g} ms, part of every time below"],
        ],
        most=_WIDTH,
    )
    if found.indexes or found.names:
        echo()
        print_table(
            ["index", "kind", "MB", "fits in", "searches", "in buffers", "first ms"],
            [
                *(_index_row(index, found) for index in found.indexes),
                *([n.name, n.set, n.bytes / 1e6, "", None, None, None] for n in found.names),
            ],
            most=_WIDTH,
        )
    if found.scopes:
        echo()
        print_table(
            ["search", "setting", "where", f"recall@{found.k}", "answers", "p50 ms", "p95 ms"],
            [
                *(
                    [
                        f"exact, {scope.metric}",
                        "",
                        " and ".join(filter(None, (scope.condition, scope.filter))),
                        1.0,
                        "",
                        scope.p50_ms,
                        scope.p95_ms,
                    ]
                    for scope in found.scopes
                ),
                *(
                    [
                        point.index,
                        point.setting_of(found.index_of(point)),
                        point.filter or found.index_of(point).condition or "",
                        point.recall,
                        f"{point.returned:g} of {point.wanted:g}",
                        point.p50_ms,
                        point.p95_ms,
                    ]
                    for point in found.points
                ),
                *(
                    [name.name, "by name (now)", "", name.recall, "", name.p50_ms, None]
                    for name in found.names
                ),
                *(
                    [fit.code, f"{fit.candidates} re-ranked", "", fit.recall, "", None, None]
                    for fit in found.codes
                ),
            ],
            most=_WIDTH,
        )
        if found.codes:
            echo(f"candidates of codes: estimated for {found.codes[0].rows} rows, without an index")
        for scope in found.scopes:
            if scope.filter is not None:
                rows = "some" if scope.rows is None else scope.rows
                how = "exactly" if scope.planner == "exact" else f"by {scope.planner}"
                echo(f"where {scope.filter}: {rows} rows; PostgreSQL by itself searches {how}")
    assert found.decision is not None  # noqa: S101
    for suggestion in found.advice:
        _print_advice(suggestion)
    if found.sets:
        echo()
        print_table(
            ["set", "fits", "MB", "build s", "candidates", "ms", "writes/s", "decision"],
            [
                [
                    one.name,
                    "yes" if one.fits else "no",
                    one.bytes / 1e6,
                    one.build_seconds,
                    one.candidates,
                    one.milliseconds,
                    one.inserts,
                    "taken" if one.taken else f"not: {one.why_not}",
                ]
                for one in found.sets
            ],
            most=_WIDTH,
        )
    _print_advice(found.decision)


def _print_advice(suggestion: "Advice") -> None:
    echo()
    for line in wrap(suggestion.text, _WIDTH, break_long_words=False, break_on_hyphens=False):
        echo(line)
    for command in suggestion.commands:
        for line in command.split("\n"):
            line, _, comment = line.partition("  -- ")
            if comment:
                echo(f"  -- {comment}")
            # A line of SQL may be broken at any space; one of the shell needs a sign.
            end = " \\" if line.startswith("pg-hashindex") else ""
            parts = [line]
            if "'" not in line and '"' not in line:
                parts = wrap(line, _WIDTH - 6, break_long_words=False, break_on_hyphens=False)
            for number, part in enumerate(parts):
                echo("  " + "  " * (number > 0) + part + end * (number + 1 < len(parts)))


def _index_row(index: "VectorIndex", found: "Diagnosis") -> list[Any]:
    memory = found.memory
    fits = (
        "shared_buffers"
        if index.bytes <= memory.shared_buffers
        else "cache"
        if index.bytes <= memory.effective_cache_size
        else "neither"
    )
    return [
        index.name,
        f"{index.method} {index.operator_class}",
        index.bytes / 1e6,
        fits if index.valid else "not valid",
        index.scans,
        None if index.cached_share is None else f"{index.cached_share:.1%}",
        index.first_p50_ms,
    ]
