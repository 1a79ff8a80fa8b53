"""What is relied on of PyIceberg's Avro, and that its compiled decoder is still to be worked around."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.reader import DoubleReader, OptionReader, StringReader, StructReader
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, NestedField, StringType, StructType

from jobs.write.manifest_doubles import exact_reader

PARTITION = StructType(NestedField(1, "d", DoubleType()), NestedField(2, "s", StringType()))


def test_the_compiled_decoder_narrows_doubles() -> None:
    """When it does no longer, `manifest_doubles` and its use in `commit/pyiceberg_commit` can go."""
    assert new_decoder(struct.pack("<d", 0.1)).read_double() != 0.1


@given(st.floats(allow_nan=False))
def test_a_double_in_a_struct_is_read_by_its_bits(value: float) -> None:
    text = StringReader()
    whole = StructReader(((0, OptionReader(DoubleReader())), (None, DoubleReader()), (1, text)), Record, PARTITION)
    bits = struct.pack("<d", value)
    made = exact_reader(whole).read(new_decoder(b"\x02" + bits + bits + b"\x02x"))
    assert struct.pack("<d", made[0]) == bits
    assert made[1] == "x"
    assert exact_reader(text) is text
