"""Renames of a subject's fields: told against the table and against the version before, without a question too many."""

from __future__ import annotations

from typing import Any

from jobs.clients.registry.client import SubjectVersion
from jobs.clients.registry.failures import NotInRegistryError
from jobs.config.stream.models import StreamSpec
from jobs.quality.schema_checks.subjects import (
    SubjectContract,
    newest_contracts,
    renames_sentence,
    subject_contract,
)
from jobs.records.formats.interface.writer_schema import RegistrySchema, WriterSchema
from tests.unit.quality.schema_checks.test_forecast import metadata, spec_of


def proto(*fields: str) -> RegistrySchema:
    numbered = " ".join(f"{field} = {number};" for number, field in enumerate(fields, 1))
    return RegistrySchema("PROTOBUF", WriterSchema(f'syntax = "proto3"; message M {{ {numbered} }}'))


class Registry:
    """A registry with one subject; it counts what it is asked for."""

    def __init__(self, *versions: RegistrySchema | None) -> None:
        self.versions_: dict[int, RegistrySchema] = {
            number: each for number, each in enumerate(versions, 1) if each is not None
        }
        self.questions: int = 0

    def version(self, subject: str, version: int | None = None) -> SubjectVersion:
        self.questions += 1
        if subject != "t-value":
            raise NotInRegistryError("there is none", fix="")
        number = version or max(self.versions_)
        return SubjectVersion(subject, number, number, self.versions_[number])

    def versions(self, subject: str) -> list[int]:
        self.questions += 1
        return sorted(self.versions_)


OLD = proto("string id", "int32 n", "string note")
NEW = proto("string id", "int32 n", "string note_text")
TABLE = "id string, n int, note string"
STALE = TABLE + ", gone long, gone_too string"


def held(spec: StreamSpec, table: str, *versions: RegistrySchema | None) -> tuple[SubjectContract, int]:
    registry: Any = Registry(*versions)
    (found,) = newest_contracts(spec, metadata(spec, table), registry)
    return found, registry.questions


def renames(found: SubjectContract) -> list[str]:
    return [each.option for each in found.renames]


def test_the_table_alone_tells_a_rename_by_one_question_for_each_subject() -> None:
    found, questions = held(spec_of(), TABLE, OLD, NEW)
    assert (renames(found), questions) == (["--rename note=note_text"], 2)
    assert renames_sentence("s", found.renames) == (
        "Nothing is renamed by itself; column note may be called note_text now: "
        "frazil schema apply s --rename note=note_text keeps its values together."
    )
    assert renames(held(spec_of(), TABLE, OLD)[0]) == []
    assert found.level == "ok", "every record lands"


def test_beside_columns_that_went_long_ago_the_version_before_tells() -> None:
    found, questions = held(spec_of(), STALE, proto("string id"), None, OLD, NEW)
    assert (renames(found), questions) == (["--rename note=note_text"], 4)
    # Nothing is asked where nothing is new, and nothing is told of what the table does not have.
    assert held(spec_of(), STALE, OLD, OLD)[1] == 2
    assert renames(held(spec_of(), "id string, n int, gone long, other string", OLD, NEW)[0]) == []
    assert renames(held(spec_of(), STALE + ", note_text string", OLD, NEW)[0]) == []
    assert renames(held(spec_of(), STALE, NEW)[0]) == [], "there is no version before"


def test_a_version_before_that_cannot_be_read_tells_nothing() -> None:
    broken = RegistrySchema("PROTOBUF", WriterSchema("no schema"))
    assert renames(held(spec_of(), STALE, broken, NEW)[0]) == []
    assert renames(held(spec_of(), STALE, RegistrySchema("AVRO", WriterSchema("{}")), NEW)[0]) == []


def test_of_a_schema_in_a_file_the_table_tells() -> None:
    spec = spec_of()
    found = subject_contract(spec, metadata(spec, TABLE), "m.proto", None, NEW)
    assert renames(found) == ["--rename note=note_text"]


def test_keys_are_not_renamed() -> None:
    spec = spec_of(key={"format": "protobuf", "schema": "note string", "subject": "t-value"}, subject="none")
    (found,) = newest_contracts(spec, metadata(spec, "id string"), Registry(OLD, proto("string note_text")))  # pyright: ignore[reportArgumentType]
    assert {each.difference.kind for each in found.findings} == {"added", "gone"} and found.renames == ()
