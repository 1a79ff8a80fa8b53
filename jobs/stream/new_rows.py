"""Columns of a new table that its stream's file does not declare: a registry's newest schema, or the first records."""

from __future__ import annotations

from pyiceberg.schema import Schema

from jobs.commit.log_state import LogState
from jobs.errors import FrazilError
from jobs.spec.base import field_path
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings


def new_rows(spec: StreamSpec, settings: Settings, log: LogState) -> Schema:
    """The columns of a new table, without those that say where rows came from.

    Args:
        spec: A stream whose file does not declare them.
        settings: Of the deployment.
        log: The stream's topics.

    Raises:
        FrazilError: There is no schema to go by.
        OSError: The registry cannot be asked.
    """
    source = spec.decode.schema_source
    raise FrazilError(
        f"stream {spec.stream}: decode.schema is '{source}', and there is no table {spec.table.name}.",
        fix="create the table, or say with decode.schema where its columns come from",
    )


def refuse_misnamed(spec: StreamSpec, rows: Schema) -> Schema:
    """The columns, if all that the stream's file says of columns is of these.

    Raises:
        FrazilError: With each place of the file that names another one.
    """
    if problems := spec.problems_of(rows):
        file = f"streams/{spec.stream}.yaml"
        raise FrazilError(
            "\n".join(f"{file}: {field_path(place)}: {problem}" for place, problem in problems), fix=f"correct {file}"
        )
    return rows
