"""Bisection: a stage applied to a block, so that a record at fault fails alone and never fails the others.

When a stage raises for a block, the block is halved until the records at fault stand alone. Files, catalogs and memory
that fail are no record's fault and pass through, and so does a table that holds no row of the stream at all.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import PurePath

from jobs.formats.decoder import Failure
from jobs.formats.problems import ValueProblem
from jobs.pipeline.block import Block
from jobs.pipeline.stages import RowStage, Stage
from jobs.write.projection import ProjectionError

UNEXPECTED = "unexpected_error"


def apply_stage(stage: Stage, block: Block) -> Block:
    """What a stage makes of a block with rows; a record that it raises for becomes a failure.

    Raises:
        Exception: What the stage raises for its probe: it is broken, which is no record's fault. Also OSError,
            MemoryError and ProjectionError, whatever they are raised for.
    """
    made = _attempt(stage, block)
    if isinstance(made, Block):
        return made
    # What is raised here is about no record, and has none of the exceptions above, which may quote one, as its context.
    stage.apply(stage.probe(block))
    return block.replaced_by(list(_isolated(stage, block.part(0, block.rows.num_rows), made)))


def _isolated(stage: Stage, part: Block, failure: Failure) -> Iterator[Block]:
    """What a stage makes of the parts of a part that it has failed for, in their order."""
    count = part.rows.num_rows
    if count == 1:
        if isinstance(stage, RowStage):
            failure = failure.met(stage.before(part))
        yield part.with_rows(part.rows.slice(0, 0), slice(0, 0), failures=[failure])
        return
    for half in (part.part(0, count // 2), part.part(count // 2, count)):
        made = _attempt(stage, half)
        if isinstance(made, Block):
            yield made
        else:
            yield from _isolated(stage, half, made)


def _attempt(stage: Stage, block: Block) -> Block | Failure:
    """The block behind the stage, or the failure of its first row: of the row at fault, if it has no other."""
    try:
        return stage.apply(block)
    except ValueProblem as problem:
        return Failure(0, stage.name, problem.error_class, problem.message, problem.field)
    except (OSError, MemoryError, ProjectionError):
        raise
    except Exception as problem:
        return Failure(0, stage.name, UNEXPECTED, _described(problem), None)


def _described(problem: Exception) -> str:
    """A fault of frazil's own that a record brings out. What the exception says may quote the record: left out."""
    frames = traceback.extract_tb(problem.__traceback__)
    place = f" at {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(problem).__name__}{place}"
