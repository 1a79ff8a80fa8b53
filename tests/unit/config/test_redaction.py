"""Secrets taken out of what others say: also one that was in its file a moment ago."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.config.documents.secrets import Secret
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings


def test_a_secret_that_was_replaced_is_still_taken_out(tmp_path: Path) -> None:
    (mounted := tmp_path / "password").write_text("first one\n")
    secret = Secret(f"${{file:{mounted}}}")
    assert secret.reveal() == "first one"
    mounted.write_text("second one")
    said = redacted(Settings.embedded(tmp_path), "refused: 'first one', 'second one', first%20one", [secret])
    assert said == f"refused: '{secret}', '{secret}', {secret}"


def test_a_secret_within_a_url_is_taken_out_without_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database may repeat the password alone, as it stands or as its driver has encoded it."""
    monkeypatch.setenv("STORE_PASSWORD", "s/3cret word")
    secret = Secret("postgresql://me:${env:STORE_PASSWORD}@db/lake")
    said = "no entry for s/3cret word, s%2F3cret%20word at postgresql://me:s/3cret word@db/lake"
    assert redacted(Settings.embedded(tmp_path), said, [secret]) == f"no entry for {secret}, {secret} at {secret}"
