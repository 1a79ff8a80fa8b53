"""Groups of streams: who belongs to which, what that changes, and who must not be together."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.config.settings.generation import generation, group_generation
from jobs.config.settings.groups import group_of, mixed_groups
from jobs.config.settings.settings import Settings, SettingsFile
from jobs.config.stream.models import StreamSpec


def spec(stream: str = "s", **changes: Any) -> StreamSpec:
    document: dict[str, Any] = {
        "stream": stream,
        "source": {"topics": ["t"]},
        "decode": {"value": "json", "schema": "id string, card string"},
        "table": {"name": f"a.{stream}"},
    }
    return StreamSpec.model_validate(document | changes)


@pytest.fixture
def settings(tmp_path: Any) -> Settings:
    return Settings.embedded(tmp_path)


def grouped(settings: Settings, default: str | None) -> Settings:
    return settings.model_copy(update={"groups": SettingsFile.model_validate({"groups": {"default": default}}).groups})


@pytest.mark.parametrize(
    ("own", "default", "group"),
    [
        (None, None, None),
        (None, "small", "small"),
        ("cdc", None, "cdc"),
        ("cdc", "small", "cdc"),
        ("own", None, None),
        ("own", "small", None),
    ],
)
def test_the_file_says_which_group_else_the_settings(
    settings: Settings, own: str | None, default: str | None, group: str | None
) -> None:
    made = spec(**({"group": own} if own else {}))
    assert group_of(made, grouped(settings, default)) == group
    # What is drained now and then has no driver.
    assert group_of(spec(trigger="available_now", group="cdc"), settings) is None


def test_names_of_groups() -> None:
    for bad in ("Small", "a/b", "", "1x", "a" * 70):
        with pytest.raises(ValueError, match="must be a name"):
            spec(group=bad)
        with pytest.raises(ValueError, match="must be a name"):
            SettingsFile.model_validate({"groups": {"default": bad}})
    with pytest.raises(ValueError, match="a driver of its own"):
        SettingsFile.model_validate({"groups": {"default": "own"}})


def test_a_stream_that_moves_is_rolled_and_no_other(settings: Settings) -> None:
    plain = generation(spec(), settings)
    assert generation(spec(), grouped(settings, "small")) == generation(spec(group="small"), settings) != plain
    # It says what it had without a word.
    assert generation(spec(group="own"), settings) == plain
    assert generation(spec(group="own"), grouped(settings, "small")) == plain
    assert spec(group="small").config_hash == spec().config_hash


def test_a_group_is_rolled_by_settings_and_versions(settings: Settings) -> None:
    assert group_generation(settings, "1") == group_generation(grouped(settings, "small"), "1")
    assert group_generation(settings, "1") != group_generation(settings, "2")
    longer = settings.model_copy(update={"lease_ttl": settings.lease_ttl * 2})
    assert group_generation(settings, "1") != group_generation(longer, "1")


def masked(stream: str, variable: str, **changes: Any) -> StreamSpec:
    return spec(stream, transform=[{"mask": {"columns": ["card"], "hash": f"${{env:{variable}}}"}}], **changes)


def test_streams_with_other_secrets_are_not_in_one_group(settings: Settings) -> None:
    one, two, plain = masked("one", "KEY"), masked("two", "KEY"), spec("plain")
    assert list(mixed_groups([one, plain], settings)) == []
    in_default = grouped(settings, "small")
    assert list(mixed_groups([one, two], in_default)) == []
    # What most of them name is the measure, whatever their names.
    ((found, sentence),) = mixed_groups([plain, two, one], in_default)
    assert found is plain
    ((found, _),) = mixed_groups([one, plain, spec("zz")], in_default)
    assert found is one
    assert sentence.startswith("group small is one process")
    assert "${env:KEY} is named by only one of one and plain" in sentence
    assert list(mixed_groups([one, spec("plain", group="other")], in_default)) == []
    ((found, _),) = mixed_groups([one, masked("three", "OTHER")], in_default)
    assert found.stream == "three"
