from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.config.services.registry import LocalRegistryDown, RegistrySettings
from jobs.config.settings.settings import Settings, load_settings, secret_references
from tests.helpers.spec_files import settings_of, settings_problems

FULL = """\
registry:
  url: [https://one.example:8081/, https://two.example:8081]
  oauth:
    token_url: https://login.example/token
    client_id: ${env:FRAZIL_T_ID}
    client_secret: ${env:FRAZIL_T_SECRET}
    scope: registry
    logical_cluster: lsrc-1
    identity_pool_id: pool-1
  tls:
    ca: certificates/ca.pem
    certificate: client.pem
    key_password: ${env:FRAZIL_T_KEY}
  timeout: 3s
  lag: 1m
"""


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FRAZIL_T_ID", "FRAZIL_T_SECRET", "FRAZIL_T_KEY"):
        monkeypatch.setenv(name, "hunter2")


def test_everything_is_read(tmp_path: Path) -> None:
    registry = settings_of(tmp_path, FULL).registry
    assert registry is not None
    assert registry.url == ("https://one.example:8081", "https://two.example:8081")
    assert registry.oauth is not None
    assert registry.oauth.identity_pool_id == "pool-1"
    assert registry.tls is not None
    assert registry.tls.ca == tmp_path / "certificates/ca.pem"
    assert (registry.timeout, registry.lag) == (timedelta(seconds=3), timedelta(minutes=1))
    assert not registry.is_local


def test_its_secrets_are_among_those_of_the_settings_and_shown_nowhere(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, FULL)
    names = {name for secret in secret_references(settings) for name in secret.names}
    assert names == {"FRAZIL_T_ID", "FRAZIL_T_SECRET", "FRAZIL_T_KEY"}
    assert "hunter2" not in repr(settings) + settings.model_dump_json()


def test_without_a_block_there_is_none(tmp_path: Path) -> None:
    assert load_settings(None, home=tmp_path).registry is None


def test_a_bearer_token_may_be_a_reference_alone() -> None:
    short = RegistrySettings.model_validate({"url": "http://a", "bearer": "${env:FRAZIL_T_KEY}"})
    long = RegistrySettings.model_validate({"url": "http://a", "bearer": {"token": "${env:FRAZIL_T_KEY}"}})
    assert short == long


@pytest.mark.parametrize(
    ("block", "problem"),
    [
        ("{}", "registry.url: is required, such as https://registry.example:8081"),
        ("{url: 'registry:8081'}", "must begin with http:// or https:// and a host"),
        ("{url: 'http://a:nope'}", "must be a URL"),
        ("{url: 'http://a b'}", "must begin with http:// or https:// and a host"),
        ("{url: 5}", "must be a URL"),
        ("{url: []}", "must be a URL"),
        ("{url: [http://a, 'mock://b']}", "must begin with http:// or https:// and a host"),
        ("{url: 'http://a?x=1'}", "must end with the path, without ? and #"),
        ("{url: 'https://me:hunter2@a'}", "has a user or a password in it; write basic: {user: NAME, password:"),
        ("{url: 'https://${env:FRAZIL_T_KEY}@a'}", "is not a secret; write user and password under basic"),
        ("{urls: http://a}", "registry.urls: unknown key; did you mean 'url'?"),
        (
            "{url: http://a, basic: {user: me, password: hunter2}}",
            "basic.password: a secret must not be in the file",
        ),
        ("{url: http://a, basic: {user: 'a:b', password: '${env:X}'}}", "basic.user: must be a name without a colon"),
        ("{url: http://a, bearer: hunter2}", "a secret must not be in the file"),
        (
            "{url: http://a, bearer: '${env:X}', basic: {user: a, password: '${env:X}'}}",
            "registry.bearer: is one way to log in, basic another; leave one out",
        ),
        ("{url: http://a, tls: {ca: a.pem}}", "registry.tls: is not used with http://; did you mean https://?"),
        ("{url: https://a, tls: {key: a.pem}}", "registry.tls.key: needs a certificate beside it"),
        ("{url: https://a, tls: {ca: a.pem, verify: false}}", "registry.tls.ca: is not used with verify: false"),
        ("{url: https://a, tls: {verifi: false}}", "did you mean 'verify'?"),
        ("{url: http://a, timeout: 5}", "needs a unit; write 5s"),
    ],
)
def test_what_is_wrong_is_told_with_the_place(tmp_path: Path, block: str, problem: str) -> None:
    told = settings_problems(tmp_path, f"registry: {block}\n")
    assert len(told) == 1
    assert "frazil.yaml:1: registry" in told[0]
    assert problem in told[0]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://a", "https://a:443/", True),
        ("http://A.example:8081", "http://a.example:8081/", True),
        (["http://a", "http://b"], "http://b,http://a:80", True),
        ("http://a", "https://a", False),
        ("http://a/apis/ccompat/v7", "http://a/apis/ccompat/v6", False),
        ("http://a", ["http://a", "http://b"], False),
    ],
)
def test_a_registry_is_the_same_however_it_is_written(one: Any, other: Any, same: bool) -> None:
    identities = {RegistrySettings.model_validate({"url": each}).identity for each in (one, other)}
    assert (len(identities) == 1) is same


def test_credentials_are_no_part_of_its_identity() -> None:
    plain = RegistrySettings.model_validate({"url": "http://a"})
    known = RegistrySettings.model_validate({"url": "http://a", "bearer": "${env:FRAZIL_T_KEY}"})
    assert plain.identity == known.identity


def test_the_local_registry_is_found_where_it_is_now(tmp_path: Path) -> None:
    folder = tmp_path / ".frazil/registry"
    folder.mkdir(parents=True)
    registry = Settings.embedded(tmp_path).registry
    assert registry is not None
    assert registry.is_local
    with pytest.raises(LocalRegistryDown) as told:
        registry.require_urls()
    assert isinstance(told.value, FrazilError)
    (folder / "address").write_text("http://127.0.0.1:1\n")
    before = registry.identity
    assert registry.require_urls() == ("http://127.0.0.1:1",)
    (folder / "address").write_text("http://127.0.0.1:2")
    assert registry.require_urls() == ("http://127.0.0.1:2",)
    assert registry.identity == before
