"""Monitoring blocks of the settings: who is told of what, what is refused, and that no secret is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.config.documents.validation import SpecError
from jobs.config.settings.generation import generation
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings, load_settings, secret_references
from jobs.local.certify.workspace import settings_document
from tests.unit.orchestration.deployments import deployment_in

HOOK = {"webhook": {"url": "https://alerts.example/hook"}}
MAIL = {"host": "mail.example", "from": "frazil@example.com", "to": "oncall@example.com"}


def load(home: Path, alerts: dict[str, Any], **others: Any) -> Settings:
    (home / "frazil.yaml").write_text(yaml.safe_dump({"alerts": alerts, **others}))
    return load_settings(None, home=home)


def refusals(home: Path, *targets: dict[str, Any], **others: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(home, {"targets": list(targets), **others})
    return [problem.partition(": ")[2] for problem in caught.value.problems]


def test_targets_have_names_and_a_severity(tmp_path: Path) -> None:
    slack = {"slack": {"webhook_url": "${env:SLACK_URL}"}, "severity": "critical"}
    mail = {"name": "oncall", "email": MAIL, "streams": ["payments", "orders-*"]}
    alerts = load(tmp_path, {"targets": [HOOK, slack, mail]}).alerts
    assert alerts.names == ("webhook-1", "slack-2", "oncall")
    hook, chat, letter = alerts.targets
    assert [hook.wants("payments", each) for each in ("info", "warning", "critical")] == [False, True, True]
    assert [chat.wants("payments", each) for each in ("warning", "critical")] == [False, True]
    streams = ("payments", "orders-eu", "orders", "refunds", "")
    assert [letter.wants(each, "warning") for each in streams] == [True, True, False, False, True]
    assert letter.email is not None
    assert (letter.email.sender, letter.email.to, letter.email.server_port) == (
        "frazil@example.com",
        ("oncall@example.com",),
        587,
    )


def test_a_runbook_is_a_page_of_the_docs_or_an_address(tmp_path: Path) -> None:
    for base, expected in (
        (None, "docs/runbooks/stream-halted.md"),
        ("https://wiki.example/frazil/", "https://wiki.example/frazil/stream-halted"),
        ("https://git.example/{page}.md", "https://git.example/stream-halted.md"),
    ):
        assert load(tmp_path, {"runbooks": base}).alerts.runbook("stream-halted") == expected


@pytest.mark.parametrize(
    ("target", "place", "said"),
    [
        ({}, "webhook", "needs exactly one of webhook, slack and email"),
        (HOOK | {"email": MAIL}, "webhook", "needs exactly one of webhook, slack and email"),
        ({"webhook": {"url": "ftp://h/x"}}, "webhook.url", "must begin with http:// or https:// and a host"),
        ({"webhook": {"url": "https://u:pw@h/x"}}, "webhook.url", "a password must not be in the file"),
        ({"webhook": {"url": "https://h/x?token=abc"}}, "webhook.url", "a secret must not be in the file"),
        (
            {"webhook": {"url": "https://h", "headers": {"Authorization": "Bearer x"}}},
            "webhook.headers.Authorization",
            "a secret must not be in the file",
        ),
        ({"slack": {"webhook_url": "https://h/abc"}}, "slack.webhook_url", "a secret must not be in the file"),
        ({"slack": {}}, "slack.webhook_url", "needs one of webhook_url"),
        ({"slack": {"token": "${env:T}"}}, "slack.channel", "belongs to token"),
        ({"email": MAIL | {"from": "frazil"}}, "email.from", "must be an e-mail address"),
        ({"email": MAIL | {"to": []}}, "email.to", "must not be empty"),
        ({"email": MAIL | {"username": "u"}}, "email.password", "belongs to username"),
        (
            {"email": MAIL | {"username": "u", "password": "${env:P}", "tls": "none"}},
            "email.tls",
            "would send the password in the clear",
        ),
        (HOOK | {"name": "On Call"}, "name", "must be a name of small letters"),
        (HOOK | {"streams": []}, "streams", "must not be empty"),
        (HOOK | {"severity": "high"}, "severity", "must be 'info', 'warning' or 'critical'"),
    ],
)
def test_what_is_wrong_with_a_target_is_said_at_its_place(
    tmp_path: Path, target: dict[str, Any], place: str, said: str
) -> None:
    (problem,) = refusals(tmp_path, target)
    assert problem.startswith(f"alerts.targets[0].{place}: {said}")
    assert not any(secret in problem for secret in ("pw@", "token=abc", "Bearer x", "h/abc"))


def test_two_targets_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = [HOOK | {"name": "webhook-2"}, HOOK]
    assert refusals(tmp_path, *twice) == ["alerts.targets[1].name: webhook-2 is the name of another target, too"]


def test_secrets_stay_references_and_no_driver_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOOK", "BEARER", "SLACK", "MAIL_PASSWORD"):
        monkeypatch.setenv(name, f"s3cr3t-{name}")
    hook = {"url": "${env:HOOK}", "headers": {"Authorization": "Bearer ${env:BEARER}"}}
    mail = MAIL | {"username": "u", "password": "${env:MAIL_PASSWORD}"}
    settings = load(
        tmp_path, {"targets": [{"webhook": hook}, {"slack": {"webhook_url": "${env:SLACK}"}}, {"email": mail}]}
    )
    shown = repr(settings) + settings.model_dump_json() + repr(settings.model_dump())
    assert "s3cr3t" not in shown
    names = [name for secret in secret_references(settings) for name in secret.names]
    assert sorted(names) == ["BEARER", "HOOK", "MAIL_PASSWORD", "SLACK"]
    assert list(secret_references(settings, sources=False)) == []


def test_no_driver_is_started_anew_for_alerts(tmp_path: Path) -> None:
    home = deployment_in(tmp_path, "payments")
    spec = load_stream(home / "streams" / "payments.yaml")
    before = generation(spec, Settings.embedded(home))
    assert generation(spec, load(home, {"targets": [HOOK]})) == before
    assert generation(spec, load(home, {}, metrics={"folder": "seen"})) != before, "drivers note their address there"


def test_a_certificate_tells_nobody(tmp_path: Path) -> None:
    settings = load(tmp_path, {"targets": [HOOK]}, metrics={"folder": "seen"})
    assert {"alerts", "metrics"}.isdisjoint(settings_document(settings, tmp_path / "state", "a.ledger"))
