"""Arguments and options that many commands share: the same name, form and help everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from resources.deployment_folder import deployment_home, stream_names

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def stream_completions(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    """The streams of the deployment that the command line names, as a shell completes them."""
    home: Path | None = ctx.find_root().params.get("home")
    return [CompletionItem(name) for name in stream_names(deployment_home(home)) if name.startswith(incomplete)]


class StreamName(click.ParamType):
    """A stream by its name; a shell completes it from the files in `streams/`."""

    name = "stream"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The streams that begin with what is typed."""
        return stream_completions(ctx, incomplete)


def stream_argument(*, required: bool = True) -> Callable[[Decorated], Decorated]:
    """The argument STREAM: one stream."""
    return click.argument("stream", type=StreamName(), required=required)


def streams_argument(name: str = "streams", metavar: str | None = None) -> Callable[[Decorated], Decorated]:
    """The argument STREAMS: any number of streams, also none."""
    return click.argument(name, nargs=-1, type=StreamName(), metavar=metavar)


def json_option(text: str = "Print the facts as one JSON document.") -> Callable[[Decorated], Decorated]:
    """The option `--json`, as `as_json`: one document on standard output; errors stay on standard error."""
    return click.option("--json", "as_json", is_flag=True, help=text)


def dry_run_option(
    text: str = "Show what would be done, and change nothing.", *, names: tuple[str, ...] = ("--dry-run",)
) -> Callable[[Decorated], Decorated]:
    """The option `--dry-run`, as `dry_run`."""
    return click.option(*names, "dry_run", is_flag=True, help=text)


def yes_option(
    text: str = "Do it without a question; needed where no terminal can ask.",
) -> Callable[[Decorated], Decorated]:
    """The option `--yes`, as `yes`, of commands whose effect cannot be taken back."""
    return click.option("--yes", "yes", is_flag=True, help=text)
