"""Group of commands whose modules are imported on first use: help, misspelt names and completion import none."""

from __future__ import annotations

import contextlib
import gc
import importlib
import keyword
import os
import sys
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import ClassVar

import click
from click.shell_completion import CompletionItem

from jobs.base.system.pandas_import import keep_pandas_out, without_pandas

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


class LazyCommands(click.Group):
    """Group of commands that are imported when needed.

    Attributes:
        table: Module and help line of each command, by its name. The module has the command under its name, with `_`
            for `-`, and with `_` after a keyword of Python.
    """

    table: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of all commands, in the order of the table."""
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name; None if there is none."""
        if cmd_name not in self.table:
            return None
        with quick_imports():
            module = importlib.import_module(self.table[cmd_name][0])
        attribute = cmd_name.replace("-", "_")
        return getattr(module, f"{attribute}_" if keyword.iskeyword(attribute) else attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is typed; a name that is none comes with the nearest ones."""
        name, known = args[0], self.list_commands(ctx)
        if name not in known and not name.startswith("-") and not ctx.resilient_parsing:
            # The nearest name to `help` would be that of another command.
            near = get_close_matches(name, known) if name != "help" else []
            ctx.fail(f"No such command '{name}'. {_did_you_mean(near) if near else f'{ctx.command_path} --help'}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands and options that begin with what is typed."""
        commands = [CompletionItem(name, help=self.table[name][1]) for name in self.list_commands(ctx)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [*(item for item in commands if item.value.startswith(incomplete)), *options]

    def sections(self) -> Mapping[str, list[str]]:
        """The commands by the section of the help that shows them."""
        return {"Commands": list(self.table)}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section."""
        for title, names in self.sections().items():
            with formatter.section(title):
                formatter.write_dl([(name, self.table[name][1]) for name in names])


@contextlib.contextmanager
def quick_imports() -> Iterator[None]:
    """A block for a command's imports, which are most of a short command's time.

    Garbage is not looked for among classes that stay, neither meanwhile nor later. NumPy's linear algebra, which no
    command uses, starts no threads. pyarrow, with its first array, would import pandas, for which few commands have a
    use; they ask by name.
    """
    collects, threads, imported = gc.isenabled(), os.environ.get(_BLAS_THREADS), len(sys.modules)
    gc.disable()
    os.environ.setdefault(_BLAS_THREADS, "1")
    try:
        with without_pandas():
            yield
            if "pyarrow" in sys.modules:
                # A command may make its first array later.
                keep_pandas_out()
    finally:
        if threads is None:
            # Read once, when NumPy is loaded; what this process starts gets the environment as it was.
            os.environ.pop(_BLAS_THREADS, None)
        if len(sys.modules) > imported:
            gc.freeze()
        if collects:
            gc.enable()


def _did_you_mean(near: list[str]) -> str:
    *others, last = map(repr, near)
    return f"Did you mean {', '.join(others)} or {last}?" if others else f"Did you mean {last}?"
