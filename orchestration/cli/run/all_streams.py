"""All streams of a deployment for `frazil run --all`, one after the other, with the result of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import click

from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from orchestration.cli.run.measurement import why_nothing_landed
from orchestration.cli.terminal import print_columns, print_error, print_json
from orchestration.cli.unexpected_error import is_interrupt, unexpected_error
from resources.deployment import Deployment

Result = Literal["landed", "nothing new", "skipped", "failed"]


class NotLanded(FrazilError):
    """The stream is not for this command to land: a driver does, or an operator has stopped it."""


@dataclass(frozen=True, slots=True)
class Landed:
    """What became of one stream in a run of all.

    Attributes:
        name: The stream; the file where it cannot be read.
        facts: As `frazil run` has them; None if it did not come to its end.
        problem: Why it was skipped or failed.
    """

    name: str
    result: Result
    facts: dict[str, Any] | None = None
    problem: FrazilError | None = None

    def row(self) -> list[str | int | None]:
        """As the table shows it."""
        facts = self.facts
        if facts is None:
            return [self.name, self.result, *(None for _ in range(6))]
        records = facts["records"]
        counts = [records[name] for name in ("read", "landed", "dead", "tombstones")]
        return [self.name, self.result, *counts, facts["lag"], f"{facts['whole']['seconds']:,.1f}"]


def land_all(deployment: Deployment, land: Callable[[StreamSpec], dict[str, Any]], *, as_json: bool) -> None:
    """Land every stream, say what became of each, and end with status 1 if one failed.

    They share one Spark, which is started anew if its JVM has ended with one of them. A stream that a driver lands, or
    that an operator has stopped, is skipped, which is no failure; a file that cannot be read is one.

    Args:
        land: Lands one stream; returns the facts.
    """
    done = list(_each(deployment, land))
    if as_json:
        print_json({"runs": [_facts(each) for each in done]})
    else:
        names = ("stream", "result", "read", "landed", "dead", "tombstones", "lag", "seconds")
        print_columns(names, [each.row() for each in done], text=("stream", "result"))
    for each in done:
        if each.problem is not None and each.result == "failed":
            print_error(each.problem)
        elif each.problem is not None:
            click.echo(f"skipped: {each.problem.message}", err=True)
    if any(each.result == "failed" for each in done):
        raise SystemExit(1)


def _each(deployment: Deployment, land: Callable[[StreamSpec], dict[str, Any]]) -> Iterator[Landed]:
    specs, errors = deployment.streams()
    for spec in specs:
        try:
            facts = land(spec)
        except NotLanded as problem:
            yield Landed(spec.stream, "skipped", problem=problem)
        except FrazilError as problem:
            yield Landed(spec.stream, "failed", problem=problem)
        except Exception as problem:
            if (interrupt := is_interrupt(problem)) is not None:
                raise interrupt from None
            yield Landed(spec.stream, "failed", problem=unexpected_error(problem, f"stream {spec.stream}", deployment))
        else:
            problem = why_nothing_landed(facts)
            result: Result = "landed" if facts["records"]["read"] else "nothing new"
            yield Landed(spec.stream, "failed" if problem else result, facts, problem)
    for error in errors:
        yield Landed(error.path.name if error.path is not None else "streams/", "failed", problem=error)


def _facts(each: Landed) -> dict[str, Any]:
    problem = each.problem
    return {
        "stream": each.name,
        "result": each.result,
        "facts": each.facts,
        "error": problem and problem.message,
        "next": problem and problem.fix,
    }
