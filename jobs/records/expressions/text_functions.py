"""Functions of texts, which count code points from 1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.expressions.calls import (
    Function,
    call,
    constant,
    function,
)
from jobs.records.expressions.casts import cast, coerced
from jobs.records.expressions.nested_functions import element_of
from jobs.records.expressions.nodes import Call, Node
from jobs.records.expressions.problem import Mismatch
from jobs.records.expressions.sql_types import (
    BINARY,
    BOOLEAN,
    INT,
    STRING,
)
from jobs.records.expressions.values import Kernel

LONGEST = 10_000
"""Limit of characters that a text is padded to."""


def joined(arguments: Sequence[Node], expression: str) -> Node:
    """Return concatenated texts; other values are cast to text first. Null if one of them is null."""
    texts: list[Node] = []
    for each in arguments:
        # Nested concatenations are merged into one call.
        inner = each.arguments if isinstance(each, Call) and each.kernel is _joined else (each,)
        texts += [cast(one, STRING, expression) for one in inner]
    return call(_joined, texts, STRING, expression)


def _joined(*texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


def _joined_with(arguments: Sequence[Node], expression: str) -> Node:
    separator = constant(arguments[0], "a separator")
    texts = [cast(each, STRING, expression) for each in arguments[1:]]
    return call(partial(_skipping, str(separator)), texts, STRING, expression, nullable=False)


def _skipping(separator: str, *texts: pa.Array | pa.Scalar) -> pa.Array:
    """Join texts without nulls; empty if all are null, in which case Arrow would drop the row."""
    first = pc.if_else(pc.is_null(pc.coalesce(*texts)), "", texts[0])
    return pc.binary_join_element_wise(first, *texts[1:], separator, null_handling="skip")


def _of_text(kernel: Kernel, kind: ice.IcebergType, arguments: Sequence[Node], expression: str) -> Node:
    return call(kernel, [coerced(arguments[0], STRING, expression)], kind, expression)


def _with_constant(kernel: str, kind: ice.IcebergType, arguments: Sequence[Node], expression: str) -> Node:
    text = coerced(arguments[0], STRING, expression)
    pattern = _text(arguments[1])
    return call(partial(_matching, kernel, pattern), [text], kind, expression)


def _matching(kernel: str, pattern: str, texts: pa.Array) -> pa.Array:
    return pc.call_function(kernel, [texts], pc.MatchSubstringOptions(pattern))


def _text(node: Node, what: str = "a text") -> str:
    found = constant(node, what)
    if not isinstance(found, str):
        raise Mismatch(f"needs {what}")
    return found


def _whole(node: Node, what: str, first: int, last: int) -> int:
    found = constant(node, what)
    if not isinstance(found, int) or not first <= found <= last:
        raise Mismatch(f"needs {what} from {first} to {last}")
    return found


def _trim(kernel: str, arguments: Sequence[Node], expression: str) -> Node:
    characters = _text(arguments[1], "the characters to remove") if len(arguments) > 1 else " "
    return call(partial(_trimmed, kernel, characters), [coerced(arguments[0], STRING, expression)], STRING, expression)


def _trimmed(kernel: str, characters: str, texts: pa.Array) -> pa.Array:
    return pc.call_function(kernel, [texts], pc.TrimOptions(characters))


def _octets(arguments: Sequence[Node], expression: str) -> Node:
    node = arguments[0]
    kind = BINARY if isinstance(node.type, ice.BinaryType) else STRING
    return call(pc.binary_length, [coerced(node, kind, expression)], INT, expression)


def _substring(arguments: Sequence[Node], expression: str) -> Node:
    start = _whole(arguments[1], "the first character,", 1, 2**31 - 1) - 1
    stop = None if len(arguments) < 3 else start + _whole(arguments[2], "a number of characters", 0, 2**31 - 1)
    return call(partial(_sliced, start, stop), [coerced(arguments[0], STRING, expression)], STRING, expression)


def _left(arguments: Sequence[Node], expression: str) -> Node:
    stop = _whole(arguments[1], "a number of characters", 0, 2**31 - 1)
    return call(partial(_sliced, 0, stop), [coerced(arguments[0], STRING, expression)], STRING, expression)


def _right(arguments: Sequence[Node], expression: str) -> Node:
    count = _whole(arguments[1], "a number of characters", 0, 2**31 - 1)
    # A slice from -0 would be the whole text.
    kernel = partial(_sliced, -count, None) if count else partial(_sliced, 0, 0)
    return call(kernel, [coerced(arguments[0], STRING, expression)], STRING, expression)


def _sliced(start: int, stop: int | None, texts: pa.Array) -> pa.Array:
    return pc.utf8_slice_codeunits(texts, start, stop)


def _replace(arguments: Sequence[Node], expression: str) -> Node:
    wanted, put = _text(arguments[1], "the text to replace"), _text(arguments[2], "what takes its place")
    if not wanted:
        raise Mismatch("the text to replace is empty")
    return call(partial(_replaced, wanted, put), [coerced(arguments[0], STRING, expression)], STRING, expression)


def _replaced(wanted: str, put: str, texts: pa.Array) -> pa.Array:
    return pc.replace_substring(texts, wanted, put)


def _pad(kernel: str, arguments: Sequence[Node], expression: str) -> Node:
    width = _whole(arguments[1], "a width", 0, LONGEST)
    filling = _text(arguments[2], "a character") if len(arguments) > 2 else " "
    if len(filling) != 1:
        raise Mismatch("needs one character to fill up with")
    kernel_ = partial(_padded, kernel, width, filling)
    return call(kernel_, [coerced(arguments[0], STRING, expression)], STRING, expression)


def _padded(kernel: str, width: int, filling: str, texts: pa.Array) -> pa.Array:
    return pc.call_function(kernel, [texts], pc.PadOptions(width, filling))


def _split_part(arguments: Sequence[Node], expression: str) -> Node:
    separator = _text(arguments[1], "a separator")
    if not separator:
        raise Mismatch("the separator is empty")
    index = _whole(arguments[2], "the number of the part,", 1, 1_000_000) - 1
    kernel = partial(_part, separator, index)
    return call(kernel, [coerced(arguments[0], STRING, expression)], STRING, expression, nullable=True)


def _part(separator: str, index: int, texts: pa.Array) -> pa.Array:
    return element_of(index, pc.split_pattern(texts, separator))


def _position(arguments: Sequence[Node], expression: str) -> Node:
    kernel = partial(_found, _text(arguments[1], "the text to look for"))
    return call(kernel, [coerced(arguments[0], STRING, expression)], INT, expression)


def _found(wanted: str, texts: pa.Array) -> pa.Array:
    """Return positions in characters, where Arrow counts bytes."""
    at = pc.find_substring(texts, wanted)
    if not wanted:
        return pc.add(at, pa.scalar(1, pa.int32()))
    before = pc.utf8_length(element_of(0, pc.split_pattern(texts, wanted, max_splits=1)))
    return pc.if_else(pc.less(at, 0), pa.scalar(0, pa.int32()), pc.add(before, pa.scalar(1, pa.int32())))


def _pattern(node: Node) -> str:
    pattern = _text(node, "a regular expression")
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as problem:
        said = str(problem).partition(": ")[2] or str(problem)
        raise Mismatch(f"it is no regular expression of RE2: {said}") from None
    return pattern


def _matches(arguments: Sequence[Node], expression: str) -> Node:
    kernel = partial(_matching, "match_substring_regex", _pattern(arguments[1]))
    return call(kernel, [coerced(arguments[0], STRING, expression)], BOOLEAN, expression)


def _replace_regex(arguments: Sequence[Node], expression: str) -> Node:
    pattern, put = _pattern(arguments[1]), _text(arguments[2], "what takes its place")
    _try(_replaced_regex, pattern, put)
    kernel = partial(_replaced_regex, pattern, put)
    return call(kernel, [coerced(arguments[0], STRING, expression)], STRING, expression)


def _try(kernel: Kernel, *constants: str) -> None:
    try:
        kernel(*constants, pa.array([""]))
    except pa.ArrowInvalid as problem:
        raise Mismatch(str(problem)) from None


def _replaced_regex(pattern: str, put: str, texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, pattern, put)


def _extract_regex(arguments: Sequence[Node], expression: str) -> Node:
    pattern = _pattern(arguments[1])
    named = f"(?P<found>{pattern})"
    try:
        pc.extract_regex(pa.array([""]), named)
        kernel = partial(_extracted, named)
    except pa.ArrowInvalid:
        # The pattern has groups, and Arrow requires a name for each.
        kernel = partial(_cut_out, pattern)
    return call(kernel, [coerced(arguments[0], STRING, expression)], STRING, expression, nullable=True)


def _extracted(pattern: str, texts: pa.Array) -> pa.Array:
    return pc.struct_field(pc.extract_regex(texts, pattern), "found")


def _cut_out(pattern: str, texts: pa.Array) -> pa.Array:
    """Return the first match by removing everything around it."""
    matching = pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, pa.string()))
    return pc.replace_substring_regex(matching, rf"\A(?s:.*?)({pattern})(?s:.*)\z", r"\1")


FUNCTIONS: tuple[Function, ...] = (
    function("upper(text)", "in upper case, a character for each", partial(_of_text, pc.utf8_upper, STRING)),
    function("lower(text)", "in lower case, a character for each", partial(_of_text, pc.utf8_lower, STRING)),
    function("length(text)", "its characters (code points)", partial(_of_text, pc.utf8_length, INT)),
    function("octet_length(text)", "its bytes in UTF-8; or those of a binary", _octets),
    function("trim(text [, characters])", "without spaces, or these characters, at both ends",
             partial(_trim, "utf8_trim")),
    function("ltrim(text [, characters])", "likewise at the beginning", partial(_trim, "utf8_ltrim")),
    function("rtrim(text [, characters])", "likewise at the end", partial(_trim, "utf8_rtrim")),
    function("substr(text, start [, length])", "from a character on", _substring),
    function("left(text, count)", "its first characters", _left),
    function("right(text, count)", "its last characters", _right),
    function("replace(text, wanted, other)", "with another text wherever one stands", _replace),
    function("lpad(text, width [, character])", "filled up in front, never cut", partial(_pad, "utf8_lpad")),
    function("rpad(text, width [, character])", "filled up behind, never cut", partial(_pad, "utf8_rpad")),
    function("reverse(text)", "from its last character to its first", partial(_of_text, pc.utf8_reverse, STRING)),
    function("starts_with(text, beginning)", "whether it begins so",
             partial(_with_constant, "starts_with", BOOLEAN)),
    function("ends_with(text, end)", "whether it ends so", partial(_with_constant, "ends_with", BOOLEAN)),
    function("contains(text, part)", "whether a text stands in it",
             partial(_with_constant, "match_substring", BOOLEAN)),
    function("position(text, part)", "the character where a text first stands in it; 0: nowhere", _position),
    function("split_part(text, separator, number)", "the part between separators, from 1; null without one",
             _split_part),
    function("concat(value, …)", "joined; null if one of them is", joined),
    function("concat_ws(separator, value, …)", "joined with a separator, without those that are null", _joined_with),
    function("regexp_like(text, pattern)", "whether a part of it matches (RE2)", _matches),
    function("regexp_replace(text, pattern, other)", "with another text for every match; \\1 is a group",
             _replace_regex),
    function("regexp_extract(text, pattern)", "the first match; null without one", _extract_regex),
)  # fmt: skip
