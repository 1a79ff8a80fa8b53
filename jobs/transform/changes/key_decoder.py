"""Key decoder: what reads the keys of records, for the step that finds former keys in headers."""

from __future__ import annotations

from dataclasses import replace

from jobs.formats.decoder_spec import DecoderSpec
from jobs.transform.chain import Chain
from jobs.transform.changes.row_changes import RowChanges


def with_key_decoder(chain: Chain, keys: DecoderSpec) -> Chain:
    """The steps with what decodes keys, where one reads some from headers.

    Args:
        chain: The steps.
        keys: What decodes them, with what finds their writer schemas.
    """
    steps = [
        replace(each, keys=keys) if isinstance(each, RowChanges) and each.key is None else each for each in chain.steps
    ]
    return replace(chain, steps=tuple(steps))
