"""`frazil letters`: count dead letters, show why they failed, and what people decide about them: dismiss, restore."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click
from pyiceberg.catalog import Catalog

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from jobs.config.stream.models import StreamSpec
from jobs.config.values.mask import NO_MASK
from jobs.dead_letters.expiry.dead_letter_expiry import expire_stream
from jobs.dead_letters.expiry.dead_letter_states import (
    StateChange,
    change_dead_letters,
    set_states_by_rows,
    settle_lost_replay,
)
from jobs.streaming.pipeline.topic_tables import columns_by_topic
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.dead_letter_table.page import (
    ColumnsOf,
    DeadLetterPage,
    ShownDeadLetter,
    dead_letter_page,
)
from jobs.tables.dead_letter_table.reader import DeadLetterCounts, count_dead_letters
from jobs.tables.dead_letter_table.selection import Selection, parse_selection
from jobs.tables.dead_letter_table.table import STATES, check_dead_letter_table
from orchestration.cli.common.catalogs import catalog_of_command
from orchestration.cli.common.consent import consent
from orchestration.cli.common.options import dry_run_option, json_option, stream_argument, yes_option
from orchestration.cli.common.selection_options import selecting
from orchestration.cli.common.terminal import (
    current_user,
    print_columns,
    print_json,
    visible,
)
from resources.deployment import Deployment

_SHOWN_OF_EACH = 3


@click.command()
@stream_argument()
@selecting
@click.option(
    "--dismiss", metavar="WHY", help="Dismiss the dead letters for good; the reason is kept in them with your name."
)
@click.option("--restore", metavar="WHY", help="Make exhausted (parked) and dismissed dead letters new again.")
@click.option("--after-rollback", metavar="WHY", help="Set dead letters by the table's rows, after a rollback.")
@click.option("--settle-lost", metavar="WHY", help="Go on after a replay whose record is lost and settled by hand.")
@click.option("--expire", is_flag=True, help="Delete those older than errors.dead_letters.keep, as each night.")
@dry_run_option("With a decision or --expire: show how many dead letters it is about, and change nothing.")
@yes_option("With --settle-lost: do it without a question; needed without a terminal.")
@click.option("--page", type=click.IntRange(min=1), metavar="N", help="Show the next dead letters of each cause.")
@json_option()
@click.pass_obj
def letters(
    deployment: Deployment,
    stream: str,
    dismiss: str | None,
    restore: str | None,
    after_rollback: str | None,
    settle_lost: str | None,
    expire: bool,
    dry_run: bool,
    yes: bool,
    page: int | None,
    as_json: bool,
    **selected: Any,
) -> None:
    """Count the dead letters of STREAM, show why they failed, or decide about selected ones.

    Dead letters are shown by cause, the first three of each (--limit, --page), with coordinates and the unmasked part
    of the value. Without --state, --dismiss selects new, failed and exhausted (parked) ones, and --restore exhausted
    and dismissed ones.
    """
    answers = [each for each in (dismiss, restore, after_rollback, settle_lost) if each is not None]
    if len(answers) + expire > 1 or any(not each.strip() for each in answers):
        raise FrazilError("one decision at a time, and each with a reason.", fix="frazil letters --help")
    if expire and any(selected.values()):
        raise FrazilError("--expire goes by age alone.", fix=f"frazil letters {stream} --expire --dry-run")
    if dry_run and not (answers or expire):
        raise FrazilError("--dry-run goes with a decision, or --expire.", fix=f"frazil letters {stream}")
    if page is not None and (answers or expire):
        raise FrazilError("--page is for listing dead letters, not for deciding.", fix=f"frazil letters {stream}")
    spec, settings = deployment.stream(stream), deployment.settings()
    looks = dry_run or not (answers or expire)
    with translate_errors(settings, stream), catalog_of_command(settings, stream, looks=looks) as catalog:
        if not catalog.table_exists(spec.dead_letter_table):
            missing = f"stream {stream}: table {spec.dead_letter_table} does not exist."
            raise FrazilError(missing, fix=f"frazil run {stream}")
        told, about = list[str](), 0
        decided: Selection | None = None
        if dismiss is not None:
            decided = parse_selection(**selected, default_states=("new", "failed_again", "parked"))
        elif restore is not None:
            decided = parse_selection(**selected, default_states=("parked", "dismissed"))
        elif after_rollback is not None:
            decided = Selection(states=STATES)
        if settle_lost is not None and not dry_run:
            consent(f"Let replays of {stream} go on without the record that is lost?", yes=yes)
        if dry_run and not expire:
            table = catalog.load_table(spec.dead_letter_table)
            check_dead_letter_table(table)
            about = count_dead_letters(table, stream, decided).total if decided is not None else 0
            told = [f"{stream}: the decision would be about {about:,} dead letters. Nothing was changed."]
            changed = 0
        elif expire:
            done = expire_stream(spec, settings, catalog, dry_run=dry_run)
            told = done.sentences(spec, dry_run=dry_run) if done else []
            changed = done.expired.letters if done and not dry_run else 0
        elif after_rollback is not None:
            changed = set_states_by_rows(spec, settings, catalog, current_user(), after_rollback)
        elif settle_lost is not None:
            changed = settle_lost_replay(spec, settings, catalog, f"{current_user()}: {settle_lost}")
        elif dismiss is not None:
            assert decided is not None, "the dead letters of a decision"
            change = StateChange("dismissed", current_user(), dismiss)
            changed = change_dead_letters(spec, settings, catalog, decided, change)
        elif restore is not None:
            assert decided is not None, "the dead letters of a decision"
            change = StateChange("new", current_user(), restore)
            changed = change_dead_letters(spec, settings, catalog, decided, change)
        else:
            changed = None
        table = catalog.load_table(spec.dead_letter_table)
        check_dead_letter_table(table)
        selection = parse_selection(**(selected if changed is None else _NOTHING), default_states=STATES)
        counts = count_dead_letters(table, stream, selection)
        looked = None
        if changed is None:
            looked = dead_letter_page(
                table,
                spec,
                selection,
                page=page or 1,
                of_each=selected["limit"] or _SHOWN_OF_EACH,
                columns_of=_columns_of(spec, catalog),
            )
    if as_json:
        kinds = [{"state": s, "reason": r, "letters": n} for (s, r), n in sorted(counts.by_kind.items())]
        facts = {"stream": stream, "table": spec.dead_letter_table, "changed": changed, "letters": kinds}
        if dry_run and decided is not None:
            facts["would_change"] = about
        print_json(facts | (_page_facts(looked) if looked else {}))
        return
    for sentence in told:
        click.echo(sentence)
    if changed is not None and not expire and not dry_run:
        click.echo(f"{stream}: {changed:,} dead letters changed")
    _print(counts, spec.dead_letter_table)
    if looked:
        _print_page(looked, stream)


_NOTHING: dict[str, Any] = {
    "reasons": (), "stages": (), "fields": (), "since": None, "until": None, "offsets": (), "where": None,
    "limit": None, "states": (),
}  # fmt: skip


def _columns_of(spec: StreamSpec, catalog: Catalog) -> ColumnsOf | None:
    """The rows of each topic's records, of a stream with masks: what is masked is so under each name of its column."""
    if spec.errors.mask == NO_MASK:
        return None
    return columns_by_topic(
        with_named_tables(spec, catalog),
        lambda name: stream_table(catalog, spec, name) if catalog.table_exists(name) else None,
    )


def _print(counts: DeadLetterCounts, table: str) -> None:
    if not counts.total:
        click.echo(f"no dead letters in {table}")
        return
    states = [state for state in STATES if state in counts.by(0)]
    rows = [
        [reason, *(counts.by_kind.get((state, reason), 0) for state in states), total]
        for reason, total in counts.by(1).items()
    ]
    print_columns(["reason", *states, "all"], rows, text=["reason"])


def _page_facts(page: DeadLetterPage) -> dict[str, Any]:
    """A page, as `--json` prints it."""
    causes = [
        {
            "letters": count,
            "reason": cause.error_class,
            "stage": cause.stage,
            "field": cause.field or None,
            "needs": cause.needs or None,
            "shown": [asdict(letter) for letter in page.letters.get(cause, ())],
        }
        for cause, count in page.counts.items()
    ]
    return {
        "causes": causes,
        "letters_of_other_causes": page.others,
        "page": page.page,
        "pages": page.pages,
        "problems": [{"sentence": each.message, "next": each.fix} for each in page.unreadable],
    }


def _print_page(page: DeadLetterPage, stream: str) -> None:
    """Print a page for a person: each cause with its letters, values cut."""
    for cause, letters in page.letters.items():
        field = f" at {visible(cause.field)}" if cause.field else ""
        needs = f": {visible(cause.needs)}" if cause.needs else ""
        click.echo(f"\n{page.counts[cause]:,} × {cause.error_class} in {cause.stage}{field}{needs}")
        for letter in letters:
            _print_letter(letter)
    if page.others:
        click.echo(f"\n{page.others:,} dead letters of other causes; select some, such as with --reason or --field")
    for problem in page.unreadable:
        click.echo(f"\n{problem.message}")
    if page.page < page.pages:
        click.echo(f"\npage {page.page} of {page.pages}\n  Next: frazil letters {stream} … --page {page.page + 1}")
    elif page.counts and not page.letters:
        click.echo(f"\nthere are {page.pages} pages")


def _print_letter(letter: ShownDeadLetter) -> None:
    state = "" if letter.state == "new" else f", {letter.state}"
    field = f"{visible(letter.field)}: " if letter.field else ""
    said = f": {field}{visible(letter.message)}" if letter.message else ""
    click.echo(f"  topic {letter.topic}, partition {letter.partition}, offset {letter.offset}{state}{said}")
    if letter.replay_reason:
        again = f": {visible(letter.replay_message)}" if letter.replay_message else ""
        click.echo(f"    last replay: {letter.replay_reason}{again}")
    if letter.value is not None:
        click.echo(f"    {visible(letter.value, f'{letter.value_bytes:,} bytes')}")
    if letter.row_before:
        click.echo(f"    before the step: {visible(letter.row_before)}")
    if letter.masked:
        click.echo(f"    masked: {visible(letter.masked)}")
