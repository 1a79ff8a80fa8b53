"""Loading of YAML files into their models, with errors that name file, line, column and field of each problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from jobs.base.errors import FrazilError
from jobs.config.documents.base import Problem, SpecModel, field_path
from jobs.config.documents.judgement import PLAIN_RULES, FileRules, judge
from jobs.config.documents.sentences import suggestion as suggestion
from jobs.config.documents.yaml_document import YamlDocument, YamlUnreadable, read_yaml

ModelT = TypeVar("ModelT", bound=SpecModel)
MOST_SHOWN = 20
"""Limit of problems in the message of an error; `SpecError.problems` has all of them."""


@dataclass(frozen=True, slots=True)
class FileProblem:
    """One problem of a YAML file.

    Attributes:
        file: Name of the file in messages.
        line: Line, from 1; 0 if unknown.
        column: Column of the key, from 1; 0 if unknown.
        sentence: The field and what is wrong with it.
    """

    file: str
    line: int
    column: int
    sentence: str

    def __str__(self) -> str:
        return f"{':'.join(str(part) for part in (self.file, self.line, self.column) if part)}: {self.sentence}"


class SpecError(FrazilError):
    """YAML files have problems. The message names the first twenty of them.

    Safe: Nothing was changed.
    Next: correct the lines that it names; then `frazil validate`

    Args:
        problems: One sentence each, such as ``streams/payments.yaml:12:3: decode.shema: unknown key; did you mean
            'schema'?``; a `FileProblem` has its place apart.
        path: The file, if all problems are in one.
        stream: The stream in the file, if it names one.

    Attributes:
        problems: All sentences.
        places: All problems with a known place.
    """

    def __init__(
        self,
        problems: Iterable[str | FileProblem],
        *,
        fix: str = "frazil validate",
        path: Path | None = None,
        stream: str | None = None,
    ) -> None:
        given = list(problems)
        self.problems: tuple[str, ...] = tuple(dict.fromkeys(map(str, given)))
        self.places: tuple[FileProblem, ...] = tuple(each for each in given if isinstance(each, FileProblem))
        self.path: Path | None = path
        self.stream: str | None = stream
        left = len(self.problems) - MOST_SHOWN
        shown = [*self.problems[:MOST_SHOWN], *([f"… and {left:,} more"] if left > 0 else [])]
        super().__init__("\n".join(shown), fix=fix)

    def __reduce__(self) -> tuple[Any, ...]:
        known = {str(each): each for each in self.places}
        return _rebuild, (tuple(known.get(each, each) for each in self.problems), self.fix, self.path, self.stream)


def _rebuild(
    problems: tuple[str | FileProblem, ...], fix: str, path: Path | None, stream: str | None = None
) -> SpecError:
    return SpecError(problems, fix=fix, path=path, stream=stream)


def shown_path(path: Path) -> str:
    """Returns the path as messages show it: relative to the current folder if it is below, and as Unicode."""
    try:
        shown = str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        shown = str(path)
    # A file name need not be UTF-8, but messages are.
    return shown.encode(errors="backslashreplace").decode()


def load_model(
    path: Path, model: type[ModelT], *, show_values: bool, rules: FileRules = PLAIN_RULES
) -> tuple[ModelT, YamlDocument]:
    """Reads a YAML file and validates it.

    Args:
        path: The file. Relative paths in it start at its folder.
        model: Model of the whole file.
        show_values: Whether messages may quote values; false for a file that may contain secrets.
        rules: Rules beside the model.

    Raises:
        SpecError: The file has problems; the error has all of them.
    """
    shown = shown_path(path)
    # Raised outside of `except`, so that its context is no pydantic error, which contains the inputs.
    unreadable: list[FileProblem] = []
    try:
        document = read_yaml(path, shown=shown)
    except YamlUnreadable as error:
        document, unreadable = error.document, [FileProblem(shown, *each.place) for each in error.problems]
    if document is None:
        raise SpecError(unreadable, path=path)
    context = {"base": path.absolute().parent}
    loaded, found = judge(document.data, model, context=context, show_values=show_values, rules=rules)
    if loaded is not None and not unreadable:
        return loaded, document
    raise located(document, found, path, unreadable)


def located(
    document: YamlDocument, found: Iterable[Problem], path: Path, others: Iterable[FileProblem] = ()
) -> SpecError:
    """Returns one error for the problems of a file, in the order of its lines.

    Args:
        document: The parsed file.
        found: Problems of the validation.
        path: Path of the file.
        others: Further problems with their places.
    """
    problems = list(others)
    for location, text in found:
        path_of_field = field_path(location)
        sentence = f"{path_of_field}: {text}" if path_of_field else text
        problems.append(FileProblem(document.shown, *document.mark_of(location), sentence))
    stream = document.data.get("stream") if isinstance(document.data, dict) else None
    ordered = sorted(problems, key=lambda each: (each.line, each.column))
    return SpecError(ordered, path=path, stream=stream if isinstance(stream, str) else None)
