"""A secret that is replaced in its file is seen, and what merely passes is not taken for one."""

from __future__ import annotations

from pathlib import Path

from jobs.stream.watches import LOOK_SECONDS, SecretWatch


def test_another_secret_is_seen_and_what_is_unreadable_for_a_moment_is_none(tmp_path: Path) -> None:
    now = 0.0
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a\n")
    two.write_text("b\n")
    watch = SecretWatch([str(one), str(two)], lambda: now)
    for content in ("b", "b\n", "", "b"):
        two.write_text(content)
        assert not watch.changed(now=True)
    two.unlink()
    assert not watch.changed(now=True)
    two.write_text("c")
    assert not watch.changed()
    now = LOOK_SECONDS
    assert watch.changed()
    two.write_text("b")
    assert watch.changed(), "what was begun with the other one is not known"


def test_a_file_that_comes_later_counts(tmp_path: Path) -> None:
    watch = SecretWatch([str(tmp_path / "late")])
    (tmp_path / "late").write_text("a")
    assert watch.changed(now=True)


def test_without_files_there_is_nothing_to_watch() -> None:
    assert not SecretWatch([]) and not SecretWatch([]).changed(now=True)
