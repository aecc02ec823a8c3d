"""``pg-hashindex jobs``: long runs, their progress, and how to continue dead ones."""

from datetime import timedelta

import click

from pg_hashindex.db.jobs import JobRow, end_dead, list_jobs

from ._shared import connected, note, of_database, print_json, print_table


@click.command()
@click.option("--all", "ended", is_flag=True, help="List finished and failed jobs too.")
@click.option(
    "--forget", is_flag=True, help="Mark dead jobs as failed, so that they are no longer listed."
)
@of_database
def jobs(database_url: str, ended: bool, forget: bool, as_json: bool) -> None:
    """List running jobs, and dead ones with the command that continues each.

    A job is dead if its process, its connection or the server was killed: it no longer holds its
    lock. Run its command again to continue it.
    """
    with connected(database_url) as connection:
        if forget:
            note(f"gave up {end_dead(connection)} dead jobs")
        found = list_jobs(connection, ended=ended)
    if as_json:
        print_json([job.as_dict() for job in found])
        return
    print_table(
        ["id", "kind", "of", "state", "phase", "rows", "rows/s", "left", "started", "heartbeat"],
        [
            [
                job.id,
                job.kind,
                job.subject,
                job.state,
                job.phase,
                _rows(job),
                f"{job.rows_per_second:.0f}" if job.rows_per_second else "",
                job.time_left and timedelta(seconds=round(job.time_left.total_seconds())),
                job.started_at,
                f"{job.heartbeat_at:%H:%M:%S}",
            ]
            for job in found
        ],
    )
    if not found:
        note("no job runs, and none is dead")
    for job in found:
        if job.state == "dead":
            note(f"job {job.id} is dead; {_how(job)}")
        elif job.state == "failed" and job.message is not None:
            note(f"job {job.id} failed: {' '.join(job.message.split())}")


def _rows(job: JobRow) -> str:
    # The total was an estimate; the rows done are the real number.
    if job.rows_total is None or job.state == "done":
        return str(job.rows_done or "")
    return f"{job.rows_done} of {job.rows_total}"


def _how(job: JobRow) -> str:
    if job.resume is not None:
        return f"continue: {job.resume}"
    if job.kind == "tune":
        return "run pg-hashindex tune again: it drops what was left, and starts over"
    if job.kind == "swap" and job.is_index:
        return "it made no codes, or was nearly done: see pg-hashindex index show"
    return f"there is no index {job.subject} any more: pg-hashindex jobs --forget"
