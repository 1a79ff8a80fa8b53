"""Page of the commands: docs/reference/commands.md, from the commands themselves, with the keys of their JSON."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping

import click

from orchestration.cli.main import main

_HEAD = """\
# Commands

`frazil COMMAND --help` shows the same in a shell. `python -m tests.reference` writes this page from the commands.

| exit status | meaning |
|---|---|
| 0 | done |
| 1 | an error, shown as a sentence with `Next:`; or the answer of a command that checks something, as its text says |
| 2 | a wrong command line |
| 130, 143 | interrupted by Ctrl-C, or by SIGTERM |

Other statuses are in the text of their command. With `--json` a command prints one JSON document on standard output,
and everything else on standard error.
"""
_JSON = """\
## JSON documents

Keys of what `--json` prints. Times are ISO 8601 in UTC; a key that ends in `_ms` is in milliseconds since 1970. A key may be null.

| command | keys |
|---|---|
| `validate` | `valid`; `findings`: `stream`, `subject`, `verdict` (`ok`, `warning`, `wrong`, `unchecked`), `sentence`, `next`, `file`, `line` |
| `doctor` | `healthy`, `versions`, `findings` as of `validate` |
| `run` | `stream`, `epoch`, `records` (`read`, `landed`, `dead`, `tombstones`, `filtered`), `adds_up`, `dead_letters`, `unknown_fields`, `unknown_field_examples`, `causes`, `batches`, `files`, `refusals`, `retired_topics`, `position`, `lag`, `undecided_records`, `snapshot_id`, `dead_letter_snapshot_id`, `valid_through_ms`, `whole`, `steady`, `query_seconds`, `commit_seconds`, `commit_share`; with `--all` `runs`: `stream`, `result`, `facts`, `error`, `next` |
| `status` | `problems`; `streams`: `stream`, `table`, `dead_letter_table`, `state`, `next`, `wish` (`state`, `by`, `reason`), `generation`, `wanted_generation`, `attempt`, `failures_in_a_row`, `driver` (`pid`, `host`, `since`, `uptime_seconds`, `beat_age_seconds`, `log`, `spark_ui`, `metrics`), `error` (`message`, `kind`, `at`, `next`, `trace`), `file_problem`, `supervisor`, `epoch`, `batch`, `position`, `records_passed`, `lag`, `lag_by_partition`, `records_per_second`, `topics_without_id`, `undecided_records`, `undecided_since`, `tables`, `landed`, `parked`, `rows`, `dead`, `dead_letters_by_reason`, `unknown_fields`, `last_commit`, `complete_through`, `last_check`, `last_checks`, `unknown` (`catalog`, `kafka`: why it is not known) |
| `start`, `stop`, `pause`, `resume`, `restart` | `actions`: `stream`, `action`, `done`, `sentence`, `next` |
| `flush` | `stream`, `sentence`, `batches`, `read`, `landed`, `dead`, `kept_as_run` |
| `audit` | `stream`, `verdict` (`complete`, `undecided`, `incomplete`, `changed_since`), `full`, `since`, `seconds`, `records_audited`, `missing`, `doubled`, `rows_scanned`, `ledger_rows_added`, `tables`, `problems` (`kind`, `table`, `topic`, `partition`, `start`, `end`, `records`, `sentence`, `offsets`, `exact`, `changes`, `explained`), `main`, `route`, `answers`, `connect_queue`, `backfill`, `pending`, `notes` |
| `check` | `stream`; `tables`: `table`, `role`, `scope`, `where`, `extent`, `engine`, `rows`, `at`, `seconds`, `recorded`, `not_recorded`, `not_kept`, `increment`, `expectations` (`name`, `type`, `arguments`, `severity`, `passed`, `problem`, `rows`, `unexpected`, `share`, `observed`, `samples`, `filter`, `sql`, `meta`) |
| `letters` | `stream`, `table`, `changed`, `letters` (`state`, `reason`, `letters`), `page`, `pages`, `letters_of_other_causes`, `problems`, `causes` (`letters`, `reason`, `stage`, `field`, `needs`, `shown`) |
| `replay` | `selected`, `replayed`, `standing`, `failed_again`, `parked`, `unreadable`, `reasons`, `replay`, `snapshots`, `correction`, `null_columns`, `unknown_fields`, `seconds`, `records_per_second`, `there_is`; with `--from-topic` `read`, `landed`, `dead`, `known`, `tombstones`, `without_coordinates`, `left`, `earlier`; with `--to-topic` `selected`, `returned`, `recovered`, `left` |
| `preview` | `stream`, `file`, `ranges`, `config`, `counts`, `warned`, `left_out`, `changes`, `notes`, `tables`, `rows`, `letters`; with `--diff` `records`, `verdict` (`same`, `changed`, `lost`), `changed`, `lost`, `now`, `then`, `moves`, `columns`, `types`, `rows` |
| `backfill` | `stream`, `dry_run`, `offsets`, `ranges` (`topic`, `partition`, `start`, `end`), `left_out` (`reason`: `gone`, `read`, `ahead`, `backfilled`, `rows`; `meaning`, `topic`, `partition`, `offsets`, `ranges`), `rows_without_coordinates`, `unfinished`, `rolled_back`, `read`, `landed`, `dead`, `tombstones`, `filtered`, `batches`, `finished_earlier_batch`, `seconds` |
| `compare` | `stream`, `table`, `with`, `snapshot`, `verdict` (`equal`, `different`), `ranges`, `whole_topics`, `matched_by` (`coordinates`, `key`, `rows`), `key`, `records`, `rows` (`here`, `there`, `matched`, `equal`, `different`, `only_here`, `newer_than_table`, `only_there`, `not_judged`, `doubled_there`), `differences` (`column`, `reason`, `meaning`, `rows`, `examples`), `only_here`, `only_there`, `without_row_here` (`cause`, `records`, `rows_there`, `message`, `reason`, `examples`), `missing_columns` (`column`, `lacks`, `rows`), `tables` (`fact`, `here`, `there`, `same`, `note`), `sink`, `notes` |
| `schema diff`, `schema check` | `stream`, `table`, `schema_id`, `fits` or `verdict`, `differences` (`column`, `difference`, `rows`, `table`, `change`, `outcome`, `why`), `renames`, `proposals`, `subjects` |
| `at` | `fate`, `sentence`, `landing`, `landing_table`, `others`, `letters`, `rows`, `pending_tables`, `source`, `read`; with `--timestamp` `complete`, `up_to`, `current` |
| `accept` | `stream`, `done`, `tables` (`table`, `removed`, `passed`, `again`), `lost` |
| `mirror run`, `mirror rebuild`, `mirror accept` | `stream`, `mirrors`; with `--dry-run` `done` is `false` |
| `registry status`; `registry forget` | `registry`, `streams` (`stream`, `registry`, `schemas`, `newest`); `stream`, `schemas`, `done` |
| `state copy` | `from`, `to`, `documents`, `bytes`, `leases_left`, `restarts`, `done` |
| `logs` | `stream`, `files`, `lines` (`at`, `level`, `logger`, `message`, `file`); with `--follow` one entry a line |
| `schema infer`; `contract import` | `stream`, `topic`, `table`, `written`, `yaml`; `file`, `taken`, `left`, `yaml` |
| `generate` | `stream`, `topic`, `records`, `kinds`, `done` |
| `up`, `down` | `broker`, `registry` |
| `maintain` | `dry_run`; `tables`: `table`, `stream`, `role`, `plan`, `done`, `before`, `after`, `score_before`, `score_after`, `skipped`, `seconds`, `problems` |
"""  # noqa: E501
_DEFAULT = re.compile(r"\s*\[default: ([^\]]*)\]\.?$")


def command_page() -> str:
    """The page docs/reference/commands.md."""
    context = click.Context(main, info_name="frazil")
    lines = [_HEAD, "## Options of every command", "", *_option_lines(main, context)]
    for title, names in _sections(main, context).items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += _command_lines(main.get_command(context, name), context, name, 3)
    return "\n".join(lines).rstrip() + f"\n\n{_JSON}"


def _sections(group: click.Group, context: click.Context) -> Mapping[str, list[str]]:
    """Names of a group's commands by the sections of its help; one section where it has none."""
    sections = getattr(group, "sections", None)
    return sections() if sections is not None else {"All commands": group.list_commands(context)}


def _command_lines(command: click.Command | None, parent: click.Context, name: str, level: int) -> list[str]:
    if command is None or command.hidden:
        return []
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [f"{'#' * level} {context.command_path}", "", "```", usage, "```", "", *_help_lines(command)]
    lines += _option_lines(command, context)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            lines += _command_lines(command.get_command(context, below), context, below, level + 1)
    return lines


def _help_lines(command: click.Command) -> list[str]:
    """Paragraphs of a command's help; one that keeps its line breaks is a block of code."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b"):
            lines += ["```", *paragraph.split("\n")[1:], "```", ""]
        else:
            lines += [_text(" ".join(paragraph.split())), ""]
    return lines


def _option_lines(command: click.Command, context: click.Context) -> list[str]:
    rows: list[str] = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if not isinstance(parameter, click.Option) or record is None or "--help" in parameter.opts:
            continue
        help_text = parameter.help or ""
        stated = _DEFAULT.search(help_text)
        extra = parameter.get_help_extra(context)
        default = stated[1] if stated else extra.get("default", "")
        if extra.get("required"):
            default = "required"
        meaning = _text(_DEFAULT.sub("", help_text)) + _range(extra.get("range", ""))
        if parameter.envvar:
            variables = [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar
            meaning += f" Environment: {', '.join(f'`{each}`' for each in variables)}."
        names = re.sub(r"\b(INTEGER|FLOAT) RANGE\b", "N", record[0])
        rows.append(f"| `{_cell(names)}` | {_text(_cell(default))} | {_cell(meaning)} |")
    return ["| option | default | meaning |", "|---|---|---|", *rows, ""] if rows else []


def _range(bounds: str) -> str:
    """Bounds of a number in words, such as `x>=0` or `1<=x<=100`."""
    match = re.fullmatch(r"(?:([^<]+)(<=?))?x(?:(<=?|>=?)(.+))?", bounds)
    if match is None or not bounds:
        return ""
    least, closed, compared, bound = match.groups()
    words = [f"at least {least}" if closed == "<=" else f"above {least}"] if least else []
    if compared:
        words.append(f"{ {'<': 'below', '<=': 'at most', '>': 'above', '>=': 'at least'}[compared] } {bound}")
    return f" {' and '.join(words).capitalize()}."


def _cell(text: str) -> str:
    """Text in a cell of a table, where a pipe would end it; click separates choices by pipes."""
    return text.replace("|", ", ")


def _text(text: str) -> str:
    """Plain text as Markdown: what would be read as a tag, or as emphasis, is kept as it is."""
    return re.sub(r"([<>*])", r"\\\1", text)
