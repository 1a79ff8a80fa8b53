"""Decoders of JSON into types: threads that need one first at the same time, and that nobody makes one elsewhere."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jobs.base.system.typed_json import decode_json, typed_decoder

ROOT = Path(__file__).resolve().parents[4]
# Each round has structs that nothing has decoded yet, as a process has that has just started.
THREADS_AT_ONCE = """
from __future__ import annotations
import sys, threading
import msgspec
from jobs.base.system.typed_json import decode_json
STRUCTS = '''
from __future__ import annotations
class Example(msgspec.Struct):
    path: str | None
    at: tuple[int, int] | None = None
class Tally(msgspec.Struct):
    topic: str
    reasons: dict[str, Example]
    first: Example | None
    read: int
'''
TEXT = b'{"topic":"t","reasons":{"a":{"path":"x","at":[1,2]}},"first":{"path":null},"read":3}'
sys.setswitchinterval(1e-6)
for _ in range(20):
    exec(STRUCTS)
    made, barrier = [], threading.Barrier(8)
    def decode(kind=Tally):
        barrier.wait()
        made.append(DECODE(TEXT, kind).read)
    threads = [threading.Thread(target=decode) for _ in range(8)]
    for each in threads: each.start()
    for each in threads: each.join()
    assert made == [3] * 8, made
"""


def test_threads_decode_a_struct_first_at_the_same_time() -> None:
    """The driver of a group ended so, with all of its streams, when two of them had their first batch at once."""
    program = THREADS_AT_ONCE.replace("DECODE", "decode_json")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_decoded_is_of_the_type_or_an_error() -> None:
    assert decode_json('{"a": [1, 2]}', dict[str, tuple[int, int]]) == {"a": (1, 2)}
    assert typed_decoder(dict[str, int]) is typed_decoder(dict[str, int])
    with pytest.raises(msgspec.ValidationError):
        decode_json(b'{"a": "b"}', dict[str, int])


# One thread keeps a driver; and classes of which each decoder has its own are nobody else's.
ELSEWHERE = {
    "jobs/base/system/typed_json.py",
    "jobs/streaming/supervision/keeper/keeper_restart.py",
    "jobs/records/formats/json/reference.py",
}
# Resolved anew each time, so nothing is shared.
PLAIN = {"dict", "list", "msgspec.Raw"}


def resolves_a_type(text: str) -> Iterator[str]:
    """Calls of msgspec that resolve a type which may be a struct."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name, types = ast.unparse(node.func), [each.value for each in node.keywords if each.arg == "type"]
        if name.endswith("json.Decoder"):
            types += node.args[:1]
            yield from (ast.unparse(node) for kind in types if ast.unparse(kind).partition("[")[0] not in PLAIN)
        elif name == "msgspec.convert" or (name == "msgspec.json.decode" and types):
            yield ast.unparse(node)


def test_the_finder_sees_every_form() -> None:
    forms = ("msgspec.json.decode(a, type=B)", "msgspec.json.Decoder(B)", "msgspec.json.Decoder(type=B)")
    assert [*resolves_a_type("\n".join((*forms, "msgspec.convert(a, B)")))] == [*forms, "msgspec.convert(a, B)"]
    assert not [*resolves_a_type("msgspec.json.decode(a); msgspec.json.Decoder(dict[str, msgspec.Raw]).decode(a)")]


def test_nothing_else_resolves_types_of_its_own() -> None:
    found = set[str]()
    for layer in ("jobs", "resources", "assets", "orchestration"):
        for path in (ROOT / layer).rglob("*.py"):
            text = path.read_text()
            if "msgspec" in text and any(resolves_a_type(text)):
                found.add(path.relative_to(ROOT).as_posix())
    assert found == ELSEWHERE
