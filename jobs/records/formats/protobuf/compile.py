"""Compilation of .proto texts: a writer schema with its imports becomes descriptors, once per process.

protoc runs in a separate process: within this one it would write to its standard error, and a crash would end it. It
only parses; no plugin, and nothing from a text, is ever run.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from jobs.base.errors import first_line
from jobs.records.formats.interface.writer_schema import BadWriterSchema, NoSchema, WriterSchema
from jobs.records.formats.protobuf.bundled import BUNDLED

_PROTOC = "import sys; sys.path.append(sys.argv.pop(1)); from grpc_tools import protoc; sys.exit(protoc.main(sys.argv))"
_SECONDS = 60
_LONGEST_SAID = 300
_OWN = "google/protobuf/"
_ERROR = re.compile(r"^(?P<file>[^\s:]+\.proto):(?:(?P<line>\d+):(?:\d+:)?)? (?P<said>(?!warning:).+)$", re.MULTILINE)


def message_of(schema: WriterSchema) -> Descriptor:
    """Return the message type of a writer schema's records, on a descriptor pool of the schema's own.

    Args:
        schema: The text of the .proto file, the files that it imports, and the indexes of the message; without indexes
            it is the first message.

    Raises:
        BadWriterSchema: protoc refuses the text, or it has no such message.
    """
    compiled = _compiled(schema.text, schema.references)
    indexes = schema.message or (0,)
    declared = list(compiled.message_types_by_name.values())
    found: Descriptor | None = None
    for index in indexes:
        if not 0 <= index < len(declared):
            where = "the schema" if found is None else f"the message {found.full_name}"
            raise BadWriterSchema(f"{where} has no message number {index} (message indexes {list(indexes)})")
        found = declared[index]
        # Entries of maps are messages too, but nobody declared them.
        declared = [each for each in found.nested_types if not _is_map_entry(each)]
    assert found is not None
    return found


def _is_map_entry(message: Descriptor) -> bool:
    return message.GetOptions().map_entry


@lru_cache(maxsize=256)
def _compiled(text: str, references: tuple[tuple[str, str], ...]) -> FileDescriptor:
    files = FileDescriptorSet.FromString(descriptor_set(text, references)).file
    pool = DescriptorPool()
    try:
        for file in files:
            pool.AddSerializedFile(file.SerializeToString())
    except (TypeError, ValueError) as error:
        raise NoSchema(f"the schema is refused: {first_line(error)[:_LONGEST_SAID]}") from None
    return pool.FindFileByName(files[-1].name)


def descriptor_set(text: str, references: tuple[tuple[str, str], ...]) -> bytes:
    """Return a .proto text and its imports as a serialized `FileDescriptorSet`; the text's own file comes last.

    Args:
        text: The .proto file.
        references: Import path and text of each file that it refers to.

    Raises:
        BadWriterSchema: protoc refuses the text, or an import path leads out of the folder of imports.
    """
    packages = _packages()
    texts = {**BUNDLED, **{path: one for path, one in references if not path.startswith(_OWN)}}
    name = "schema.proto"
    while name in texts:
        name = f"_{name}"
    with tempfile.TemporaryDirectory(prefix="frazil-protoc-") as folder:
        top = Path(folder) / "files"
        for path, one in {**texts, name: text}.items():
            file = _within(top, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(one.encode("utf-8", "replace"))
        made = Path(folder) / "made"
        paths = [".", packages / "grpc_tools" / "_proto", packages]
        command = [sys.executable, "-I", "-S", "-c", _PROTOC, str(packages), *(f"-I{each}" for each in paths)]
        command += ["--include_imports", f"--descriptor_set_out={made}", name]
        try:
            ended = subprocess.run(command, cwd=top, capture_output=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise BadWriterSchema(f"protoc takes more than {_SECONDS} seconds for it") from None
        if ended.returncode == 0:
            return made.read_bytes()
    raise NoSchema(_said(ended.stderr.decode("utf-8", "replace"), name, ended.returncode))


def _packages() -> Path:
    """Return the folder of installed packages that has grpc_tools, and Google's .proto files."""
    found = find_spec("grpc_tools")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent.parent


def _within(top: Path, path: str) -> Path:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\\" in path or "\0" in path or not path.isprintable():
        raise BadWriterSchema(f"needs import paths such as 'shop/item.proto', found {path[:_LONGEST_SAID]!r}")
    return top.joinpath(*parts)


def _said(text: str, name: str, code: int) -> str:
    """Return protoc's first sentence with file and line, and the number of further ones."""
    found = list(_ERROR.finditer(text))
    if not found:
        return f"protoc refuses the schema without a message (it ended with {code})"
    first = found[0]
    where = "" if first["file"] == name else f" in {first['file']}"
    line = f" at line {first['line']}" if first["line"] else ""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    said = first["said"]
    said = said if len(said) <= _LONGEST_SAID else f"{said[:_LONGEST_SAID]}…"
    return f"protoc refuses the schema{where}{line}: {said.rstrip()}{more}"
