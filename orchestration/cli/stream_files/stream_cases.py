"""Command `frazil test`: test cases of streams, from records to rows and dead letters, without Spark and Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from jobs.base.errors import FrazilError
from jobs.clients.catalog.translate import translate_errors
from jobs.clients.state_store.durable_files import write_durably
from jobs.config.documents.validation import SpecError, shown_path, suggestion
from jobs.config.documents.yaml_document import YamlDocument, YamlUnreadable, parse_yaml
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.cases.case_file import FOLDER, Case, CaseFile, case_files, cases_of, load_cases
from jobs.streaming.cases.case_run import CaseOutcome, run_case
from jobs.streaming.cases.case_writing import expectation, with_expectations
from jobs.streaming.cases.comparison import differences, plain
from orchestration.cli.common.terminal import print_error, print_json
from resources.deployment import STREAMS_FOLDER, Deployment


@dataclass(frozen=True, slots=True)
class CaseResult:
    """Result of one case.

    Attributes:
        line: Line of the case in its file, from 1.
        outcome: Rows and dead letters of the case's records; None if the case could not be run.
        problems: Differences from the case's expectation, as sentences; empty if it passed.
        fix: Next step if the case could not be run.
        written: Whether the outcome was written into the file as the case's expectation.
    """

    name: str
    line: int
    outcome: CaseOutcome | None
    problems: tuple[str, ...] = ()
    fix: str | None = None
    written: bool = False

    @property
    def passed(self) -> bool:
        """Whether the outcome is as expected, or was written as the expectation."""
        return self.written or not self.problems


@click.command()
@click.argument("streams", nargs=-1)
@click.option("--write", is_flag=True, help="Write what came out into the cases that fail, as their expectation.")
@click.option("--json", "as_json", is_flag=True, help="Print the facts as one JSON document.")
@click.pass_context
def test(ctx: click.Context, streams: tuple[str, ...], write: bool, as_json: bool) -> None:
    """Run the cases of STREAMS, or of all streams, through the code of their drivers: status 1 if one fails.

    The cases of stream payments are in streams/tests/payments.yaml. Tables, topics and state are not touched; a
    registry is needed only by streams with schemas there.

    \b
      cases:
        - name: an amount in euros lands
          records:
            - value: {id: p-1, amount: "12.50"}
            - value: no json
          rows:
            - {id: p-1, amount: 12.50}
          dead_letters:
            - {class: malformed_json}

    Columns that a row does not name are not compared, numbers are exact, and unexpected rows or dead letters fail the
    case. With --write, a case needs only records.
    """
    deployment: Deployment = ctx.obj
    chosen = _chosen(deployment, streams)
    settings = deployment.settings()
    facts: list[dict[str, Any]] = []
    failed = False
    for stream, path in chosen.items():
        try:
            spec = deployment.stream(stream)
            results = run_stream(spec, settings, path, write=write)
        except FrazilError as problem:
            failed = True
            problems = problem.problems if isinstance(problem, SpecError) else (problem.message,)
            facts.append({"stream": stream, "file": shown_path(path), "problems": list(problems), "cases": []})
            if not as_json:
                print_error(problem)
            continue
        failed = failed or not all(result.passed for result in results)
        facts.append(_stream_facts(stream, path, results))
        if not as_json:
            _print(stream, path, results)
    unread = sum(bool(stream["problems"]) for stream in facts)
    every = [case for stream in facts for case in stream["cases"]]
    passed = sum(case["passed"] for case in every)
    if as_json:
        print_json({"passed": passed, "failed": len(every) - passed, "streams": facts})
    else:
        said = f"{len(every):,} case{'' if len(every) == 1 else 's'}"
        said += ", all passed" if passed == len(every) else f", {len(every) - passed:,} failed"
        said = said if every else "no case was run"
        click.echo(f"{said}; {unread:,} of {len(facts):,} files could not be run" if unread else said)
    ctx.exit(1 if failed else 0)


def run_stream(spec: StreamSpec, settings: Settings, path: Path, *, write: bool) -> list[CaseResult]:
    """Run all cases of a file.

    Args:
        spec: Spec of the stream.
        settings: Settings of the deployment.
        path: The file with the stream's cases.
        write: Whether to write the outcomes of failed cases into the file.

    Raises:
        SpecError: The file has problems.
        FrazilError: A case to be written is on one line, or shares values with others.
    """
    text = path.read_bytes().decode("utf-8-sig") if path.is_file() else ""
    try:
        cases, document = load_cases(path)
    except SpecError as problem:
        # `frazil validate` looks at the streams' own files.
        raise SpecError(problem.problems, fix=f"correct the lines, then frazil test {spec.stream}") from None
    results: list[CaseResult] = []
    made: dict[int, dict[str, Any]] = {}
    for number, case in enumerate(cases.cases):
        line = document.line_of(("cases", number))
        try:
            with translate_errors(settings, spec.stream):
                outcome = run_case(spec, settings, case)
        except FrazilError as problem:
            results.append(CaseResult(case.name, line, None, (problem.message,), problem.fix))
            continue
        problems = tuple(differences(case, outcome))
        if problems and write:
            made[number] = expectation(outcome, spec.kafka_columns)
        results.append(CaseResult(case.name, line, outcome, problems, written=number in made))
    if made:
        new = with_expectations(text, document, made)
        if not _is_as_meant(new, document, cases, results):
            raise FrazilError(
                f"{document.shown}: what came out cannot be written, as other cases would change: they share values by "
                "anchors (&, *, <<). Nothing was changed.",
                fix="write the values themselves in place of the anchors",
            )
        mode = path.stat().st_mode
        write_durably(path, new.encode())
        path.chmod(mode)
    return results


def _is_as_meant(text: str, document: YamlDocument, cases: CaseFile, results: Sequence[CaseResult]) -> bool:
    """Whether the new text of a file has the written expectations, and is otherwise unchanged."""
    try:
        now = cases_of(parse_yaml(text, shown=document.shown)).cases
    except (YamlUnreadable, ValueError):
        return False

    def unwritten(case: Case) -> str:
        # NaN does not equal itself, but its text does.
        return repr((case.name, case.records))

    return len(now) == len(cases.cases) and all(
        unwritten(case) == unwritten(before) and result.outcome is not None and not differences(case, result.outcome)
        if result.written
        else repr(case) == repr(before)
        for case, before, result in zip(now, cases.cases, results, strict=True)
    )


def _chosen(deployment: Deployment, streams: Sequence[str]) -> dict[str, Path]:
    """Files of the chosen streams' cases, by stream.

    Raises:
        FrazilError: A chosen stream has no cases, or no stream has any.
    """
    files = case_files(deployment.streams_folder)
    place = Path(STREAMS_FOLDER) / FOLDER
    if not streams and not files:
        raise FrazilError(
            f"There are no cases in {deployment.streams_folder / FOLDER}.",
            fix=f"write {place}/STREAM.yaml; frazil test --help has an example",
        )
    for stream in streams:
        if stream not in files:
            deployment.stream(stream)
            near = suggestion(stream, files)
            raise FrazilError(
                f"stream {stream} has no cases: {place / f'{stream}.yaml'} does not exist."
                + (f" There is {files[near].name}." if near else ""),
                fix=f"write {place / f'{stream}.yaml'}; frazil test --help has an example",
            )
    return {stream: files[stream] for stream in streams} if streams else files


def _print(stream: str, path: Path, results: Sequence[CaseResult]) -> None:
    for result in results:
        verdict = "written" if result.written else "ok" if result.passed else "FAILED"
        color = "green" if result.passed else "red"
        click.secho(f"{verdict:<8}", fg=color, nl=False)
        click.echo(f"{stream}: {result.name}" + ("" if result.passed else f" ({shown_path(path)}:{result.line})"))
        if not result.written:
            for problem in result.problems:
                click.echo(f"        {problem}")
        if result.fix:
            click.echo(f"        Next: {result.fix}")


def _stream_facts(stream: str, path: Path, results: Sequence[CaseResult]) -> dict[str, Any]:
    return {
        "stream": stream,
        "file": shown_path(path),
        "problems": [],
        "cases": [
            {
                "name": result.name,
                "line": result.line,
                "passed": result.passed,
                "written": result.written,
                "problems": list(result.problems),
                **(_outcome_facts(result.outcome) if result.outcome is not None else {}),
            }
            for result in results
        ],
    }


def _outcome_facts(outcome: CaseOutcome) -> dict[str, Any]:
    return {
        "rows": [{"record": record, "table": table, "row": plain(row)} for record, table, row in outcome.rows],
        "dead_letters": [
            {
                "record": record,
                "class": letter.error_class,
                "stage": letter.stage,
                "field": letter.field,
                "message": letter.message,
            }
            for record, letter in outcome.letters
        ],
    }
