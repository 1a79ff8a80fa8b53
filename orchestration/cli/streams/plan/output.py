"""Forms of a plan for people: text for a terminal, and Markdown for the comment of a pull request."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import click

from jobs.base.errors import FrazilError
from orchestration.deployment_plan.change import (
    ORDER,
    Change,
    ChangeClass,
    DeploymentPlan,
    Doer,
    StreamPlan,
    counted,
)
from orchestration.deployment_plan.file_changes import shown_pair

_SIGNS = {"new": "+", "changed": "~", "removed": "-", "unchanged": "="}
_COLOURS = {
    ChangeClass.NOTHING: "bright_black",
    ChangeClass.METADATA: "green",
    ChangeClass.RESTART: "yellow",
    ChangeClass.REWRITE: "magenta",
    ChangeClass.RESET: "red",
    ChangeClass.BREAKING: "red",
}
_BY = {
    Doer.NOBODY: "nothing to do",
    Doer.FRAZIL: "by the next start, batch or merge",
    Doer.APPLY: "by frazil apply",
    Doer.OPERATOR: "by you",
}
_WIDTH = 13
_NAMED_STREAMS = 5
_INDENT = " " * (_WIDTH + 4)


def change_sentence(change: Change) -> str:
    """A change on a line: its key with its values, if it has one, and what follows."""
    if change.subject in ("file", "settings") or change.place.startswith("mirrors."):
        before, after = shown_pair(change.before, change.after)
        return f"{change.place}: {before} → {after}. {change.sentence[:1].upper()}{change.sentence[1:]}"
    return change.sentence


def sorted_changes(changes: Sequence[Change]) -> list[Change]:
    """The changes, the gravest first; what is done already last."""
    return sorted(changes, key=lambda each: (not each.pending, -ORDER[each.kind]))


def summary(plan: DeploymentPlan) -> str:
    """The plan in a sentence."""
    looked = len(plan.streams)
    unseen = [each.stream for each in plan.streams if each.unknown]
    if not plan.pending and unseen:
        others = looked - len(unseen)
        rest = f" {others} {'other is' if others == 1 else 'others are'} as the files say." if others else ""
        return f"Not known whether anything is to be done: {_not_looked_at(unseen)}.{rest}"
    if not plan.pending:
        return f"Nothing to do: {looked} {'stream is' if looked == 1 else 'streams are'} as the files say."
    named = ", ".join(f"{count} {kind.value}" for kind, count in plan.counts.items())
    streams = sum(bool(each.pending) for each in plan.streams)
    of = f"{streams} of {looked} {'stream' if looked == 1 else 'streams'}" if streams else "the settings"
    changes = f"{len(plan.pending)} {'change' if len(plan.pending) == 1 else 'changes'}, in {of}: {named}."
    return f"{changes} Not everything is known: {_not_looked_at(unseen)}." if unseen else changes


def _not_looked_at(streams: Sequence[str]) -> str:
    more = len(streams) - _NAMED_STREAMS
    named = ", ".join(streams[:_NAMED_STREAMS]) + (f" and {more} more" if more > 0 else "")
    return f"{'stream' if len(streams) == 1 else 'streams'} {named} could not be looked at completely"


def next_step(plan: DeploymentPlan) -> str | None:
    """The next command; None if nothing is to be done, or files alone were compared."""
    stops = [each for each in plan.changes if each.stops]
    if stops:
        return f"decide about what is {stops[0].kind.value} first" + (f": {stops[0].fix}" if stops[0].fix else "")
    if plan.everything_unknown:
        return plan.everything_unknown[0].fix
    if plan.against is not None or not plan.pending:
        return None
    if any(each.step is not None for each in plan.pending):
        return "frazil apply"
    return next((each.fix for each in plan.pending if each.doer is Doer.OPERATOR and each.fix), None)


def print_plan(plan: DeploymentPlan, *, everything: bool) -> None:
    """Print a plan as text on standard output.

    Args:
        everything: Whether streams without a change are named as well.
    """
    if plan.settings:
        click.secho("settings", bold=True)
        _print_changes(plan.settings)
    for stream in plan.streams:
        if stream.changes or stream.unknown or everything:
            _print_stream(stream)
    for each in plan.unknown:
        _print_unknown(each.sentence, each.fix)
    click.echo(summary(plan))
    if any(each.step for each in plan.pending) and not plan.supervised and plan.against is None:
        click.echo(
            "Nobody supervises the deployment: a changed file takes effect with frazil apply, or frazil restart."
        )
    if (following := next_step(plan)) is not None:
        click.echo(f"  Next: {following}")


def _print_stream(stream: StreamPlan) -> None:
    # Nobody can say that a stream is unchanged whose tables were not looked at.
    unseen = stream.status == "unchanged" and stream.unknown
    click.secho(f"{'?' if unseen else _SIGNS[stream.status]} {stream.stream}", bold=True, nl=False)
    click.echo(f": {'not known' if unseen else stream.status}")
    _print_changes(stream.changes)
    for each in stream.unknown:
        _print_unknown(each.sentence, each.fix)


def _print_changes(changes: Sequence[Change]) -> None:
    for change in sorted_changes(changes):
        click.echo("  ", nl=False)
        click.secho(f"{change.kind.value:<{_WIDTH}}", fg=_COLOURS[change.kind], nl=False)
        drift = "drift: " if change.drift else ""
        click.echo(f"  {drift}{_line(change_sentence(change))}")
        if change.detail:
            click.echo(f"{_INDENT}({_line(change.detail)})")
        if change.fix and (change.doer is Doer.OPERATOR or (change.drift and change.doer is Doer.NOBODY)):
            click.echo(f"{_INDENT}Next: {_line(change.fix)}")
        elif change.kind is ChangeClass.REWRITE and change.fix:
            click.echo(f"{_INDENT}If you want that: {_line(change.fix)}")


def _line(text: str) -> str:
    """A text on one line that does nothing to a terminal."""
    return "".join(each if each.isprintable() else " " for each in " ".join(text.split()))


def _print_unknown(sentence: str, fix: str | None) -> None:
    click.secho(f"  {'not known':<{_WIDTH}}", fg="yellow", nl=False)
    click.echo(f"  {_line(sentence)}")
    if fix:
        click.echo(f"{_INDENT}Next: {_line(fix)}")


def markdown(plan: DeploymentPlan) -> str:
    """The plan as Markdown: a summary, a table of what is left to do, and what is known besides."""
    return "\n".join(_markdown(plan)) + "\n"


def _markdown(plan: DeploymentPlan) -> Iterator[str]:
    against = f" against `{_cell(plan.against)}`" if plan.against is not None else ""
    yield f"### frazil plan{against}"
    yield ""
    yield _cell(summary(plan))
    named = [(None, plan.settings), *((each, each.changes) for each in plan.streams)]
    if plan.pending:
        yield ""
        yield "| stream | class | change | who |"
        yield "|---|---|---|---|"
        for stream, changes in named:
            for change in sorted_changes([each for each in changes if each.pending]):
                yield _row(stream, change)
    others = [(stream, each) for stream, changes in named for each in changes if not each.pending]
    if others:
        yield ""
        yield f"<details><summary>{len(others)} without anything to do</summary>"
        yield ""
        for stream, change in others:
            name = f"`{stream.stream}`" if stream else "settings"
            yield f"- {name}: {'drift: ' if change.drift else ''}{_cell(change_sentence(change))}"
        yield ""
        yield "</details>"
    unknown = [(None, each) for each in plan.unknown]
    unknown += [(stream.stream, each) for stream in plan.streams for each in stream.unknown]
    if unknown or plan.problems:
        yield ""
        for name, each in unknown:
            yield f"- not known{f' of `{name}`' if name else ''}: {_cell(each.sentence)}"
        for problem in plan.problems:
            yield f"- wrong: {_cell(problem)}"


def _row(stream: StreamPlan | None, change: Change) -> str:
    name = f"`{stream.stream}` ({stream.status})" if stream is not None else "settings"
    kind = f"**{change.kind.value}**" if change.stops else change.kind.value
    said = f"{'drift: ' if change.drift else ''}{_cell(change_sentence(change))}"
    if change.detail:
        said += f" ({_cell(change.detail)})"
    who = _BY[change.doer]
    if change.doer is Doer.OPERATOR and change.fix:
        who += f": {_cell(change.fix)}"
    return f"| {name} | {kind} | {said} | {who} |"


def _cell(text: str) -> str:
    """A text within a cell of a table: on one line, and without effect as Markdown or HTML."""
    return re.sub(r"([\\|*_`<>\[\]~#@])", r"\\\1", _line(text))


def refusal(plan: DeploymentPlan) -> FrazilError | None:
    """Why nothing of a plan is applied; None if it can be."""
    if plan.problems:
        return FrazilError(
            "Nothing was applied, as files have problems:\n" + "\n".join(plan.problems), fix="frazil validate"
        )
    if stops := [each for each in plan.changes if each.stops]:
        named = ", ".join(f"{count} {kind.value}" for kind, count in counted(stops).items())
        first = stops[0]
        whose = f"stream {first.stream}: " if first.stream else ""
        others = sorted({each.stream for each in plan.pending if each.stream} - {each.stream for each in stops})
        apart = f"; or frazil apply {' '.join(others[:5])}, without it" if others else ""
        return FrazilError(
            f"Nothing was applied, because a decision is needed first about {named}: {whose}{first.sentence}.",
            fix=f"{first.fix or 'frazil plan'}{apart}",
        )
    if unknown := plan.everything_unknown:
        return FrazilError(
            f"Nothing was applied, as not everything could be looked at: {unknown[0].sentence.rstrip('.')}.",
            fix=unknown[0].fix or "frazil validate",
        )
    return None
