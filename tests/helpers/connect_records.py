"""Generated schemas of Connect's JSON, and enveloped records of them: good ones, bad ones and hostile ones."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from jobs.records.formats.connect_types import DECIMAL
from jobs.records.schema.declared import (
    DeclaredType,
    ListType,
    MapType,
    Primitive,
    StructType,
)
from tests.helpers.json_records import records, structs

_DATA = "org.apache.kafka.connect.data."
_TIME = "io.debezium.time."
_WORDS: dict[Primitive, dict[str, Any]] = {
    Primitive("boolean"): {"type": "boolean"},
    Primitive("int", encoding="int8"): {"type": "int8"},
    Primitive("int", encoding="int16"): {"type": "int16"},
    Primitive("int"): {"type": "int32"},
    Primitive("long"): {"type": "int64", "name": "some.name", "version": 3},
    Primitive("float"): {"type": "float"},
    Primitive("double"): {"type": "double", "doc": "a number"},
    Primitive("string"): {"type": "string"},
    Primitive("binary", encoding="base64"): {"type": "bytes"},
    **{
        Primitive("decimal", 38, scale, "unscaled"): {
            "type": "bytes",
            "name": DECIMAL,
            "parameters": {"scale": str(scale)},
        }
        for scale in (0, 2, 38)
    },
    Primitive("date", encoding="epoch_days"): {"type": "int32", "name": _DATA + "Date"},
    Primitive("time", encoding="millis_of_day"): {"type": "int32", "name": _DATA + "Time"},
    Primitive("time", encoding="nanos_of_day"): {"type": "int64", "name": _TIME + "NanoTime"},
    Primitive("timestamptz", encoding="epoch_ms"): {"type": "int64", "name": _DATA + "Timestamp"},
    Primitive("timestamp", encoding="epoch_us"): {"type": "int64", "name": _TIME + "MicroTimestamp"},
    Primitive("timestamptz", encoding="iso"): {"type": "string", "name": _TIME + "ZonedTimestamp"},
}

primitives = st.sampled_from(list(_WORDS))
kinds: st.SearchStrategy[DeclaredType] = st.recursive(
    primitives,
    lambda inner: st.one_of(
        structs(inner),
        st.builds(ListType, inner, st.booleans()),
        st.builds(MapType, st.just(Primitive("string")), inner, st.booleans()),
        st.builds(
            MapType,
            primitives.filter(lambda key: key.name != "string" and key.encoding != "iso"),
            inner,
            st.booleans(),
            st.just("pairs"),
        ),
    ),
    max_leaves=4,
)


def connect_schema(declared: DeclaredType, *, required: bool = True) -> dict[str, Any]:
    """The schema in Connect's JSON whose values these types are."""
    optional = {} if required else {"optional": True}
    match declared:
        case StructType(fields):
            inner = [{**connect_schema(one.type, required=one.required), "field": one.name} for one in fields]
            return {"type": "struct", "fields": inner, **optional}
        case ListType(element, element_required):
            return {"type": "array", "items": connect_schema(element, required=element_required), **optional}
        case MapType(key, value, value_required):
            values = connect_schema(value, required=value_required)
            return {"type": "map", "keys": connect_schema(key), "values": values, **optional}
        case Primitive():
            return {**_WORDS[declared], **optional}


_HOSTILE: list[bytes | None] = [
    *(None, b"", b" ", b"null", b"{}", b"[]", b"1", b'"x"', b"\xff", b'{"schema":null}', b'{"payload":{}}'),
    b'{"schema":null,"payload":{}}',
    b'{"schema":null,"payload":null}',
    b'{"schema":{},"payload":{}}',
    b'{"schema":{"type":"int33"},"payload":{}}',
    b'{"schema":{"type":"int64"},"payload":5}',
    b'{"schema":{"type":"int64","optional":true},"payload":null}',
    b'{"schema":{"type":"string"},"payload":"\xff"}',
    b'{"schema":{"type":"struct","fields":[]},"payload":{}}',
    b'{"schema":' + b'{"type":"array","items":' * 60 + b'{"type":"int8"}' + b"}" * 60 + b',"payload":[]}',
    b'{"schema":' + b"[" * 5000 + b"]" * 5000 + b',"payload":[]}',
    b'{"schema":{"type":"struct","fields":[{"field":"a","type":"string"}]},"payload":%s}' % (b"[" * 9000 + b"]" * 9000),
    b'{"schema":{"type":"string"},"payload":"x"}}',
    b'\xef\xbb\xbf{"schema":{"type":"string"},"payload":"x"}',
]


@st.composite
def enveloped(draw: st.DrawFn, declared: StructType) -> bytes | None:
    """A record of a schema, mostly in the form that Connect writes."""
    luck = draw(st.integers(0, 29))
    if luck == 0:
        return draw(st.sampled_from(_HOSTILE))
    payload = draw(records(declared)) or b"null"
    schema = json.dumps(connect_schema(declared), separators=(",", ":")).encode()
    form = {
        1: b'{"payload":%(payload)s,"schema":%(schema)s}',
        2: b' {\n"schema" : %(schema)s , "payload" : %(payload)s }\n',
        3: b'{"schema":%(schema)s,"payload":%(payload)s,"more":1}',
        4: b'{"schema":%(schema)s,"payload":1,"payload":%(payload)s}',
        5: b'{"schema":%(schema)s,"payload":%(payload)s,"payload":{}}',
        6: b'{"\\u0073chema":%(schema)s,"payl\\u006fad":%(payload)s}',
        7: b'{"schema":%(schema)s,"payload":%(payload)s',
        8: b'{"schema":%(schema)s,"payload":%(payload)s}}',
        9: b'{"schema":%(schema)s,"payload":%(payload)s},"x":{}}',
        10: b"%(payload)s",
        11: b'{"schema":%(schema)s,"payload":"%(payload)s"}',
        12: b'{"schema":{"type":"string"},"payload":%(payload)s,"schema":%(schema)s}',
    }.get(luck, b'{"schema":%(schema)s,"payload":%(payload)s}')
    return form % {b"payload": payload, b"schema": schema}


blocks = st.lists(structs(kinds), min_size=1, max_size=3).flatmap(
    lambda schemas: st.tuples(
        st.just(schemas), st.lists(st.sampled_from(schemas).flatmap(enveloped), min_size=1, max_size=10)
    )
)
