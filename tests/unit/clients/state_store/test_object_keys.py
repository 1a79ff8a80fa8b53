"""Keys of an S3 client are those of this moment, for each request."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.clients.state_store.object_store import session_with_keys
from jobs.config.documents.secrets import PresentValues, Secret


def test_a_request_is_signed_with_the_keys_of_its_moment(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")}
    options = PresentValues({name: Secret(f"${{file:{file}}}") for name, file in files.items()})
    for name, file in files.items():
        file.write_text(f"{name} one\n")
    credentials = session_with_keys(options).get_credentials()
    for number in ("one", "two"):
        for name, file in files.items():
            file.write_text(f"{name} {number}\n")
        assert credentials.get_frozen_credentials()[:3] == tuple(f"{name} {number}" for name in files)
    files["aws_session_token"].unlink()
    assert credentials.get_frozen_credentials()[2] == "aws_session_token two"
    assert "one" not in repr(options) and "two" not in repr(options)


def test_without_keys_aws_s_own_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of the environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    credentials = session_with_keys(PresentValues({"region_name": "eu-central-1"})).get_credentials()
    assert credentials.get_frozen_credentials()[0] == "of the environment"
