"""Shadowed record: one whose clashing values are text in columns beside theirs, or what it waits for."""

from __future__ import annotations

from collections.abc import Callable

from jobs.formats.decoder import Decoded, Failure
from jobs.formats.json.cures import LESSONS, Cures, needed
from jobs.formats.json.healing import Heal, column_at
from jobs.formats.json.seen_values import parsed
from jobs.formats.json.shadow import CLASHES, shadow_of, with_shadow, with_text
from jobs.schema.declared import StructType
from jobs.schema.needs import Path


def shadowed(
    declared: StructType, cures: Cures, failure: Failure, record: bytes, may_add: Callable[[Path], bool]
) -> Decoded | set[Heal] | list[Path] | None:
    """What becomes of a record that failed, and that changes of the columns that are there alone do not cure.

    A value that a change would let into its column is no text: the record waits until that is made, or refused.

    Args:
        declared: The columns.
        cures: What finds such changes.
        failure: Of the record.
        record: With the names of columns.
        may_add: Whether a column may be added.

    Returns:
        Its row, if all columns of text are there; the changes of columns that it waits for; else the columns of text
        that the table lacks; None if it fails whatever is changed.
    """
    columns, text, lacking, healing = declared, record, list[Path](), False
    for _ in range(LESSONS + 1):
        if not healing and cures.heal(columns, failure, lambda _, text=text: parsed(text)):
            healing = True
        else:
            column = column_at(columns, failure.field) if failure.error_class in CLASHES else None
            shadow = shadow_of(columns, column) if column else None
            rewritten = with_text(text, shadow) if shadow else None
            if shadow is None or rewritten is None or not (shadow.exists or may_add(shadow.path)):
                return None
            text = rewritten
            if not shadow.exists:
                lacking.append(shadow.path)
                columns = with_shadow(columns, shadow.path)
        decoded = cures.decode(cures.widest(columns) if healing else columns, [text])
        if len(decoded.positions):
            if healing and (heals := needed(declared, decoded.rows).get(0)):
                return heals
            if healing and not lacking:
                decoded = cures.decode(columns, [text])
            return lacking or (decoded if len(decoded.positions) else None)
        failure = decoded.failures[0]
    return None
