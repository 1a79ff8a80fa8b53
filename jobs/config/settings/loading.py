"""Loading of stream files: from ``streams/`` to specs, with every problem told by file, line and field."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pyiceberg.schema import Schema

from jobs.config.documents.base import Location, Problem, SpecModel
from jobs.config.documents.validation import (
    SpecError,
    load_model,
    located,
    shown_path,
)
from jobs.config.documents.yaml_document import YamlDocument
from jobs.config.services.maintenance_policy import StreamMaintenance
from jobs.config.stream.column_problems import (
    column_problems_of,
    mask_problems_of,
    partition_problems_of,
    sort_problems_of,
    topic_problems_of,
    type_problems_of,
)
from jobs.config.stream.error_handling import Errors
from jobs.config.stream.event_time import EventTime, event_time_problems_of
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.source import Source
from jobs.config.stream.table import Table, kafka_columns
from jobs.config.values.decode import Decode
from jobs.config.values.targets import Role, value_of_table
from jobs.records.schema.kafka_columns import NO_KAFKA_COLUMNS

# Where a stream's file names its target of a role.
_NAMED_AT: dict[Role, Location] = {"rows": ("table", "name"), "dead_letters": ("errors", "dead_letters", "table")}


def load_stream(path: Path) -> StreamSpec:
    """Reads one stream.

    Raises:
        SpecError: With every problem of the file.
    """
    return _load(path)[0]


def load_streams(folder: Path) -> tuple[list[StreamSpec], list[SpecError]]:
    """Reads what can be read: one bad file does not stop the other streams.

    Of files that claim the same stream or table all are refused, for nothing says which one is meant.

    Returns:
        The good specs, and one error for each bad file; one for the folder if it cannot be read.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file())
    except OSError as error:
        return [], [SpecError([f"{shown_path(folder)}: the folder cannot be read: {error.strerror}"])]
    loaded: list[tuple[StreamSpec, YamlDocument]] = []
    files: list[Path] = []
    errors: list[SpecError] = []
    for path in paths:
        try:
            loaded.append(_load(path))
            files.append(path)
        except SpecError as error:
            errors.append(error)
    conflicts = _conflicts(loaded)
    errors.extend(located(loaded[index][1], problems, files[index]) for index, problems in conflicts.items())
    return [spec for index, (spec, _) in enumerate(loaded) if index not in conflicts], errors


def find_stream_file(folder: Path, stream: str) -> Path | None:
    """The good file of a stream; None if it is in none."""
    try:
        files = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    except OSError:
        return None
    # As a rule a file says its stream in a line of its own; if none does, all are read.
    for path in [*(path for path in files if _says(path, stream)), *files]:
        with contextlib.suppress(SpecError):
            if load_stream(path).stream == stream:
                return path
    return None


def _says(path: Path, stream: str) -> bool:
    with contextlib.suppress(OSError):
        text = path.read_text(encoding="utf-8", errors="replace")
        return re.search(rf"^stream:\s*[\"']?{re.escape(stream)}[\"']?\s*(#.*)?$", text, re.MULTILINE) is not None
    return False


def _load(path: Path) -> tuple[StreamSpec, YamlDocument]:
    return load_model(path, StreamSpec, show_values=True, further=_disagreements_in)


def _disagreements_in(data: dict[str, Any]) -> Iterator[Problem]:
    """Checks what has to agree within the file also while other parts of it are wrong."""
    parts = {name: _part(model, data.get(name)) for name, model in _PARTS.items()}
    decode, table, errors, source = (parts[name] for name in ("decode", "table", "errors", "source"))
    declared = decode.declared if isinstance(decode, Decode) and decode.declares_all else None
    rows = Schema()
    if isinstance(decode, Decode) and declared:
        rows = decode.record_columns(NO_KAFKA_COLUMNS).beside(declared.schema)
    if isinstance(errors, Errors) and isinstance(source, Source):
        yield from topic_problems_of(errors, source)
    if isinstance(errors, Errors) and declared:
        yield from mask_problems_of(errors, rows)
    if data.get("transform"):
        # What is said of the table is about the columns behind the steps, and these may be wrong themselves.
        return
    if isinstance(decode, Decode) and declared and isinstance(table, Table):
        yield from column_problems_of(declared.schema, decode, table)
        yield from partition_problems_of(rows, table)
    event_time = parts["event_time"]
    if isinstance(event_time, EventTime) and isinstance(table, Table) and declared:
        yield from event_time_problems_of(event_time, kafka_columns(table.kafka_columns).added_to(rows))
    maintenance = parts["maintenance"]
    if isinstance(maintenance, StreamMaintenance) and declared and isinstance(table, Table):
        yield from sort_problems_of(maintenance, rows, table)
    if isinstance(maintenance, StreamMaintenance) and declared:
        yield from type_problems_of(maintenance, rows)


_PARTS: dict[str, type[SpecModel]] = {
    "source": Source,
    "decode": Decode,
    "table": Table,
    "errors": Errors,
    "maintenance": StreamMaintenance,
    "event_time": EventTime,
}


def _part(model: type[SpecModel], data: object) -> SpecModel | None:
    try:
        return model.model_validate(data)
    except ValidationError:
        return None


def _conflicts(loaded: list[tuple[StreamSpec, YamlDocument]]) -> dict[int, list[Problem]]:
    """Returns, by index, what each file claims that another one claims as well."""
    claims: dict[tuple[str, str], list[tuple[int, Location]]] = defaultdict(list)
    for index, (spec, _) in enumerate(loaded):
        claims["stream", spec.stream].append((index, ("stream",)))
        for target in spec.targets:
            claims["table", target.name].append((index, _NAMED_AT[target.role]))
        for at, mirror in enumerate(spec.mirrors):
            if not mirror.is_pattern:
                claims["table", mirror.table].append((index, ("mirrors", at, "table")))
    problems: dict[int, list[Problem]] = defaultdict(list)
    for (kind, name), claimants in claims.items():
        for index, location in claimants:
            others = [loaded[other][1].shown for other, _ in claimants if other != index]
            if others:
                problems[index].append((location, f"the {kind} '{name}' is claimed by {', '.join(others)}, too"))
    for index, (spec, _) in enumerate(loaded):
        if spec.route is None or spec.route.to is None:
            continue
        for (kind, name), claimants in claims.items():
            if kind != "table" or index in (each for each, _ in claimants):
                continue
            claimed = f"'{name}', which {loaded[claimants[0][0]][1].shown} claims"
            if value_of_table(spec.route.to, name):
                problems[index].append((("route", "to"), f"a value may name the table {claimed}"))
            elif (late := spec.late_tables) and late.clash(name):
                said = f"the late rows of a table that a value names may be for {claimed}"
                problems[index].append((("event_time", "late"), said))
    return problems
