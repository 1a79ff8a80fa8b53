"""Secrets taken out of what others say: also one that was in its file a moment ago."""

from __future__ import annotations

from pathlib import Path

from jobs.redaction import redacted
from jobs.spec.secrets import Secret
from jobs.spec.settings import Settings


def test_a_secret_that_was_replaced_is_still_taken_out(tmp_path: Path) -> None:
    (mounted := tmp_path / "password").write_text("first one\n")
    secret = Secret(f"${{file:{mounted}}}")
    assert secret.reveal() == "first one"
    mounted.write_text("second one")
    said = redacted(Settings.embedded(tmp_path), "refused: 'first one', 'second one', first%20one", [secret])
    assert said == f"refused: '{secret}', '{secret}', {secret}"
