"""``pg-hashindex index``: make, show, change, check, repair and drop indexes."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

import pg_hashindex
from pg_hashindex.db.locks import PATIENCE
from pg_hashindex.db.work import WorkRow, list_work
from pg_hashindex.index.catalog import IndexRow, read_rows, read_sets
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.options import OPTIONS, options_changed_by
from pg_hashindex.quality.tenant_recall import tenants

from ._index_options import index_options
from ._shared import (
    NO,
    NOT_ENCODED,
    Share,
    answer,
    build_options,
    confirm,
    connected,
    echo,
    force_option,
    full_option,
    is_verbose,
    key_option,
    note,
    of_database,
    of_name,
    opened,
    print_json,
    print_table,
    progress,
    rows_per_second_option,
    table_options,
    tenant_option,
    verbose_option,
    yes_option,
)

if TYPE_CHECKING:
    from pg_hashindex.operations import Repaired


# Fields that `index show` prints without --verbose.
_EVERYDAY = {
    *("name", "table", "column", "model", "access", "codes", "size"),
    *(name for name in OPTIONS if name not in options_changed_by("configure")),
}


patience_option = click.option(
    "--patience",
    type=click.FloatRange(min=0),
    default=PATIENCE,
    show_default=True,
    metavar="SECONDS",
    help="How long to try again while transactions keep the table in use.",
)


@click.group()
def index() -> None:
    """Create, encode, configure, swap, check, repair and drop indexes."""


@index.command()
@table_options(required=True)
@click.option(
    "--model",
    metavar="NAME[:VERSION]|none",
    help="Model of the codes; none: the vectors themselves.  [default: learn one]",
)
@index_options()
@build_options
@patience_option
@of_name
def create(database_url: str, name: str, as_json: bool, **options: Any) -> None:
    """Create index NAME: a name that is searched, and a set of vectors or codes behind it.

    NAME is 1 to 40 letters a to z, digits, _ and -. Writers wait for --store alone.
    Candidates and effort that find .95 of the nearest rows are measured, unless you give some. Run
    it again after an interruption.
    """
    with connected(database_url) as connection:
        with progress(f"creating index {name}"):
            made = HashIndex.create(connection, name, **options)
        _print_index(made.row, as_json)


@index.command("encode")
@rows_per_second_option
@build_options
@of_name
def encode_index(database_url: str, name: str, as_json: bool, **options: Any) -> None:
    """Finish an interrupted build of lists, and encode rows without a code."""
    with opened(database_url, name) as found:
        with progress(f"encoding the rows of {found.qualified_table}"):
            written = found.encode(**options)
        row = found.row
        waiting = row.waiting() if row.is_lists else 0
    done = {"name": name, "encoded": written, "waiting": waiting, "access": row.access}
    answer(as_json, done, f"encoded {written} rows")
    if waiting:
        note(f"{waiting} rows have no code: pg-hashindex index encode {name}")


@index.command()
@index_options(options_changed_by("configure"), new=False)
@patience_option
@of_name
def configure(database_url: str, name: str, as_json: bool, **settings: Any) -> None:
    """Change the defaults of searches of index NAME; other settings stay as they are."""
    with opened(database_url, name) as found:
        found.configure(**settings)
        _print_index(found.row, as_json)


@index.command()
@tenant_option("Only the landmarks of this tenant.")
@build_options
@of_name
def rebalance(database_url: str, name: str, as_json: bool, **options: Any) -> None:
    """Build the landmarks of index NAME again, as many as its table now calls for."""
    with opened(database_url, name) as found, progress(f"building the landmarks of {name}"):
        done = found.rebalance(**options)
    answer(
        as_json,
        {"name": name} | done._asdict(),
        f"put {done.rows} rows in the order of {done.landmarks} landmarks; there were "
        f"{done.landmarks_before}",
    )


@index.command(short_help="Show index NAME, or list every index.")
@verbose_option
@click.argument("name", required=False)
@of_database
def show(database_url: str, name: str | None, as_json: bool) -> None:
    """Show index NAME: its table and model, its codes and their size, and what is to do.

    --verbose shows its settings too. Without NAME, list every index, and the work on it: how far it
    is, or the command that continues it.
    """
    if name is None:
        _list_all(database_url, as_json)
        return
    with opened(database_url, name) as found:
        _print_index(found.row, as_json)


def _list_all(database_url: str, as_json: bool) -> None:
    rows = []
    with connected(database_url) as connection:
        work = list_work(connection)
        for row in read_rows(connection, "ORDER BY i.name"):
            own = [one for one in work if one.name == row.name]
            fields = _fields(row)
            fields["work"] = [one.as_dict() for one in own] if as_json else _at_work(own)
            if not (as_json or row.encoded):
                fields["access"] = NOT_ENCODED if row.is_lists else "not yet built"
            rows.append(fields)
    if as_json:
        print_json(rows)
        return
    headings = ["name", "table", "column", "model", "access", "work"]
    print_table(headings, [[row[heading] for heading in headings] for row in rows])
    _note_work(work)


@index.command()
@yes_option
@patience_option
@of_name
def drop(database_url: str, name: str, yes: bool, patience: float, as_json: bool) -> None:
    """Drop an index with its codes and triggers; table and model stay."""
    with opened(database_url, name) as found:
        if not yes:
            confirm(f"Drop index {name} of {found.qualified_table}, with its codes?")
        found.drop(patience=patience)
    answer(as_json, {"name": name, "dropped": True}, f"dropped index {name}")


@index.command(short_help="Give index NAME another model, while it is searched and written to.")
@click.option(
    "--model", metavar="NAME[:VERSION]|none", help="Model that takes over; by default it stays."
)
@click.option("--column", metavar="C", help="Column whose vectors take over; by default it stays.")
@index_options(options_changed_by("swap"), new=False)
@click.option(
    "--tolerance", type=Share(), default=0.01, show_default=True, help="How much recall may fall."
)
@force_option(
    "Take the new set even if recall falls by more, or the new column lacks vectors; alone, the "
    "set that is ready."
)
@rows_per_second_option
@build_options
@of_name
def swap(database_url: str, name: str, as_json: bool, **options: Any) -> None:
    """Give index NAME another set: another model, access or column; what is not named stays.

    Searches and writers wait for --store alone. With --column, the vectors of another embedding
    model take over, which the application has written into a column of their own.

    Makes the new set beside the old one; run it again after an interruption. Compares both, and
    switches at once unless recall would fall. The old set stays for 'index rollback' until 'index
    prune'.
    """
    with (
        opened(database_url, name) as found,
        progress(f"building another set of index {found.name}"),
    ):
        done = found.swap(**options)
    if as_json:
        print_json({"name": name} | asdict(done))
        return
    recall = [
        "unmeasured" if one is None else f"{one:.3f}" for one in (done.former_recall, done.recall)
    ]
    note(f"recall@10 {recall[0]} before, {recall[1]} now, with {done.candidates} candidates")
    note(
        f"index {name} searches {done.set}; the former set stays until: pg-hashindex index prune "
        f"{name}"
    )


@index.command()
@of_name
def rollback(database_url: str, name: str, as_json: bool) -> None:
    """Return to the set that index NAME had before the last swap."""
    with opened(database_url, name) as found:
        used = found.rollback()
    answer(as_json, {"name": name, "set": used}, f"index {name} has its former set again: {used}")


@index.command()
@of_name
def prune(database_url: str, name: str, as_json: bool) -> None:
    """Drop the sets of index NAME that are not in use."""
    with opened(database_url, name) as found:
        pruned = found.prune()
    said = f"dropped {pruned} sets of index {name} that were not in use"
    answer(as_json, {"name": name, "pruned": pruned}, said)


@index.command()
@of_name
@click.argument("new")
def rename(database_url: str, name: str, new: str, as_json: bool) -> None:
    """Give index NAME, and its search function, the name NEW."""
    with opened(database_url, name) as found:
        found.rename(new)
    answer(as_json, {"name": new, "renamed": name}, f"index {name} is index {new} now")


@index.command(short_help="Check index NAME, and print what is to do.")
@full_option
@verbose_option
@of_name
def check(database_url: str, name: str, full: bool, as_json: bool) -> None:
    """Check index NAME, and print what is to do; nothing is changed.

    --verbose prints every check with its value.

    Exit code 0 if all is well, 1 if something is broken or a warning: "status" in the JSON says
    which. Of large tables a sample is checked.
    """
    with opened(database_url, name) as index:
        found = pg_hashindex.operations.check(index, full=full)
    if as_json:
        print_json(found.as_dict())
    else:
        rows = [
            [f.check, f.status, f.value, f.detail]
            for f in found.findings
            if is_verbose() or f.status in ("warning", "broken")
        ]
        if rows:
            print_table(["check", "status", "value", "detail"], rows)
        else:
            known = sum(f.status == "ok" for f in found.findings)
            advised = any(f.advice is not None for f in found.findings if f.status == "ok")
            end = "" if advised else ", there is nothing to do"
            echo(f"index {name} is in order: {known} checks passed{end}")
        for finding in found.findings:
            if finding.advice is not None and (is_verbose() or finding.status != "unknown"):
                echo(f"\n{finding.check}: {finding.advice}")
    if found.status != "ok":
        raise click.exceptions.Exit(NO)


@index.command(short_help="Repair index NAME, and print what was done.")
@click.argument("name", required=False)
@full_option
@click.option("--undo", is_flag=True, help="Give up an unfinished swap or rebalance.")
@click.option(
    "--orphans",
    is_flag=True,
    help="Instead of repairing NAME, drop objects that belong to no index.",
)
@table_options("After a renaming, its table", "After a renaming, its column of vectors.")
@key_option("After a renaming, its key columns.")
@tenant_option("After a renaming, its column of tenants.", "COLUMN")
@of_database
def repair(
    database_url: str,
    name: str | None,
    full: bool,
    undo: bool,
    orphans: bool,
    as_json: bool,
    **names: Any,
) -> None:
    """Repair index NAME, and print what was done; exit code 1 if something is left.

    Makes missing parts, removes wrong codes, encodes rows without a code, and finishes interrupted
    work. May be run again at any time. Where a table or columns were renamed, name them: then every
    code is compared with its row.
    """
    renamed = any(names.values())
    if orphans:
        if name is not None or full or undo or renamed:
            raise click.UsageError("--orphans goes with no index and no other option")
        _drop_orphans(database_url, as_json)
        return
    if name is None:
        raise click.UsageError("name an index to repair, or give --orphans")
    if undo and renamed:
        raise click.UsageError("--undo goes with no new names")
    with opened(database_url, name) as found, progress(f"repairing index {name}"):
        if renamed:
            result = pg_hashindex.operations.rebind(found, **names)
        else:
            result = pg_hashindex.operations.repair(found, full=full, undo=undo)
    _print_repaired(result, as_json)


def _print_repaired(result: "Repaired", as_json: bool) -> None:
    if as_json:
        print_json(asdict(result))
    else:
        for line in result.done:
            echo(line)
        if not result.done and not result.left:
            note(f"index {result.name} is in order")
    for line in result.left:
        note(line)
    if result.left:
        raise click.exceptions.Exit(NO)


def _drop_orphans(database_url: str, as_json: bool) -> None:
    with connected(database_url) as connection:
        dropped = pg_hashindex.operations.drop_orphans(connection)
    if as_json:
        print_json([asdict(orphan) for orphan in dropped])
        return
    for orphan in dropped:
        echo(f"dropped {orphan.kind} {orphan.object}")
    if not dropped:
        note("everything in schema hashindex belongs to an index")


@index.command()
@click.option(
    "--reveal-codes",
    is_flag=True,
    help="Even if the codes reveal more than the role may read: codes of rows that row "
    "security hides, or vectors that the model keeps as anchors.",
)
@click.option(
    "--revoke", is_flag=True, help="Take the codes from them; rights on the table stay as they are."
)
@of_name
@click.argument("roles", metavar="ROLE...", nargs=-1, required=True)
def grant(
    database_url: str,
    name: str,
    roles: tuple[str, ...],
    reveal_codes: bool,
    revoke: bool,
    as_json: bool,
) -> None:
    """Let roles search index NAME by its codes, or no longer.

    They need SELECT on key and vector of the table. Other roles get exact searches of the table.
    """
    if revoke and reveal_codes:
        raise click.UsageError("--revoke takes what --reveal-codes gives: leave one out")
    with opened(database_url, name) as found, found.connection.transaction():
        for role in roles:
            if revoke:
                found.revoke(role)
            else:
                found.grant(role, reveal_codes=reveal_codes)
    may = f"may search index {name} by its codes"
    if revoke:
        may = f"may not read the codes of index {name} any more"
    done = {"name": name, "revoked" if revoke else "granted": roles}
    answer(as_json, done, *(f"role {role} {may}" for role in roles))


def _fields(found: IndexRow) -> dict[str, Any]:
    return {
        "name": found.name,
        "table": found.qualified_table,
        "column": found.column_name,
        "id": found.key_shown,
        "model": found.model_name,
        "method": found.method,
        "bits": found.n_bits,
        "cuts": len(found.cuts),
        "dimension": found.dimension,
        "encoded": found.encoded,
        "set": found.set,
        **{
            name: (", ".join(value) or None) if isinstance(value, list) else value
            for name in OPTIONS
            if name != "key_columns"
            for value in [found.options.get(name)]
        },
        "access": found.access,
        "created": found.created_at,
    }


def _note_other_set(found: IndexRow) -> None:
    """Name the set beside the one in use, and what to do about it."""
    for other in read_sets(found.connection, found.name, "building", "ready", "former"):
        if other.state == "former":
            what = (
                f"return to it: pg-hashindex index rollback {found.name}; drop it: pg-hashindex "
                f"index prune {found.name}"
            )
        elif other.state == "ready" and found.state == "used":
            what = (
                f"take it: pg-hashindex index swap {found.name} --force; drop it: pg-hashindex "
                f"index prune {found.name}"
            )
        elif not other.is_lists:
            what = (
                "begin it again by the same command, or give it up: pg-hashindex index repair "
                f"{found.name} --undo"
            )
        else:
            what = (
                f"continue: pg-hashindex index encode {found.name}; give it up: pg-hashindex index "
                f"repair {found.name} --undo"
            )
        note(f"a set is {other.state}: {other.set}; {what}")


def _at_work(work: list[WorkRow]) -> str | None:
    """Name the work on an index, and how far it is, in a cell of a table."""
    return ", ".join(f"{one.work} {_how_far(one)}" for one in work) or None


def _how_far(work: WorkRow) -> str:
    if work.is_running is False:
        return "dead"
    share = "under way" if work.share is None else f"{work.share:.0%}"
    return share if work.time_left is None else f"{share}, {work.time_left} left"


def _note_work(work: list[WorkRow]) -> None:
    for one in work:
        rows = "" if one.rows_total is None else f", {one.rows_done} of {one.rows_total} rows"
        state = {
            True: _how_far(one),
            False: f"dead; continue: {one.resume}",
            None: "under way, or dead: only the primary can tell",
        }[one.is_running]
        note(
            f"{one.work} of {one.name}: {one.phase or 'beginning'}{rows}, by {one.role} (process "
            f"{one.pid}) since {one.started_at:%Y-%m-%d %H:%M:%S}: {state}"
        )


def _print_index(found: IndexRow, as_json: bool) -> None:
    facts, shown = _of_lists(found, as_json) if found.is_lists else _of_pgvector(found)
    work = list_work(found.connection, found.name)
    if as_json:
        print_json(_fields(found) | facts | {"work": [one.as_dict() for one in work]})
        return
    shown |= {
        "work": _at_work(work),
        "search": f"SELECT * FROM {found.search_function}($1, 10)",  # noqa: S608 (printed)
    }
    print_table(
        ["", ""], [[name, str(value)] for name, value in shown.items() if value is not None]
    )
    if facts.get("waiting"):
        note(f"{facts['waiting']} rows have no code: pg-hashindex index encode {found.name}")
    _note_work(work)
    _note_other_set(found)


def _of_pgvector(found: IndexRow) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return facts of an index that pgvector keeps, for JSON, and the lines of its table."""
    size = found.relation_bytes()
    shown = {
        "name": found.name,
        "table": found.qualified_table,
        "column": found.column_name,
        "set": found.set,
        "tenant": found.tenant_column,
        "size": f"{size / 1e6:.1f} MB",
        # 0 before the first set is there.
        "candidates": found.candidates or None,
        "effort": found.effort,
    }
    return {"relation": found.relation, "bytes": size}, shown


def _of_lists(found: IndexRow, as_json: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return facts of an index that is kept by lists, for JSON, and the lines of its table."""
    summary, lists = found.summary(), found.lists()
    facts = asdict(summary) | ({} if lists is None else {"lists": asdict(lists)})
    shown = _fields(found) | {
        "encoded": None,
        "access": found.access if found.encoded else NOT_ENCODED,
        "codes": f"{summary.codes} of {summary.rows} rows, {summary.waiting} wait",
        "lists": lists
        and f"{lists.landmarks} landmarks, {lists.mean:.0f} codes each, {lists.longest} at most",
        "size": f"{summary.code_bytes / 1e6:.1f} MB of codes, "
        f"{summary.access_bytes / 1e6:.1f} MB of the access path, "
        f"{summary.vector_bytes / 1e6:.1f} MB of vectors",
    }
    # JSON does without the largest tenants, which are counted for the table.
    if not as_json and found.tenant_column is not None and found.state == "used":
        largest = tenants(found, most=3)
        shown["tenant"] = f"{found.tenant_column}; largest: " + ", ".join(
            f"{one.tenant} ({one.codes} codes)" for one in largest
        )
    everyday = {
        name.replace("_", " "): value
        for name, value in shown.items()
        if is_verbose() or name in _EVERYDAY
    }
    return facts, everyday
