"""Delivery to real servers: what a webhook, Slack and a mail server get, and what a failure says."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.config.settings.settings import Settings, load_settings
from orchestration.alerts import delivery
from orchestration.alerts.delivery import DeliveryError, deliver
from orchestration.alerts.memory import Alert
from orchestration.alerts.messages import Message, make_message
from tests.helpers.alert_receivers import receiving_hook, receiving_mail

SECRET = "s3cr3t-path"
HALTED = Alert(
    "stream_halted", "payments", "", "critical", 1_800_000_000, 1_800_000_015,
    "It failed 8 times in a row: <lost> & gone.", "frazil start payments", "/assets/lake/payments",
    fires=True,
)  # fmt: skip
BEHIND = Alert(
    "lag_above_slo", "refunds", "lake/refunds:lag_within_slo", "warning", 1_800_000_100, 1_800_000_115,
    "900 records wait.", "frazil status refunds", fires=True, ended=1_800_000_200,
)  # fmt: skip


def settings_with(home: Path, target: dict[str, Any], **alerts: Any) -> Settings:
    (home / "frazil.yaml").write_text(yaml.safe_dump({"alerts": {"targets": [target], **alerts}}))
    return load_settings(None, home=home)


def send(settings: Settings) -> Message:
    message = make_message([(HALTED, False), (BEHIND, True)], settings)
    deliver(settings.alerts.names[0], settings.alerts.targets[0], message)
    return message


def refusal(settings: Settings) -> str:
    with pytest.raises(DeliveryError) as caught:
        send(settings)
    assert caught.value.__cause__ is None
    text = str(caught.value)
    assert SECRET not in text
    return text


def test_a_webhook_gets_the_facts_as_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving_hook() as hook:
        monkeypatch.setenv("HOOK", f"{hook.url}/{SECRET}")
        monkeypatch.setenv("BEARER", "s3cr3t-bearer")
        target = {"webhook": {"url": "${env:HOOK}", "headers": {"Authorization": "Bearer ${env:BEARER}"}}}
        settings = settings_with(
            tmp_path, target, dagster_url="http://dagster.example/", runbooks="https://wiki.example/frazil"
        )
        message = send(settings)
        send(settings)
    first, second = hook.posts
    assert first == second
    assert hook.paths == [f"/hook/{SECRET}"] * 2
    assert hook.headers[0]["authorization"] == "Bearer s3cr3t-bearer"
    assert {headers["idempotency-key"] for headers in hook.headers} == {message.id}
    assert {name: value for name, value in first.items() if name != "alerts"} == {
        "version": 1,
        "id": message.id,
        "deployment": str(tmp_path),
    }
    halted, behind = first["alerts"]
    assert halted == {
        "dedupe_key": "stream_halted/payments//1800000000",
        "status": "firing",
        "alarm": "stream_halted",
        "severity": "critical",
        "stream": "payments",
        "subject": None,
        "meaning": HALTED.alarm.meaning,
        "what": HALTED.what,
        "since": "2027-01-15T08:00:00Z",
        "ended": None,
        "safe": HALTED.alarm.safe,
        "next": "frazil start payments",
        "runbook": "https://wiki.example/frazil/stream-halted",
        "dagster": "http://dagster.example/assets/lake/payments",
    }
    assert (behind["status"], behind["ended"], behind["next"]) == ("resolved", "2027-01-15T08:03:20Z", None)
    assert SECRET not in str(first)


TEXT = """\
[critical] payments: stream_halted
It failed 8 times in a row: <lost> & gone.
Since: 2027-01-15T08:00:00Z
Safe: {safe}
Next: frazil start payments
Runbook: docs/runbooks/stream-halted.md

[resolved] refunds: lag_above_slo
900 records wait.
Subject: lake/refunds:lag_within_slo
Since: 2027-01-15T08:01:40Z
Ended: 2027-01-15T08:03:20Z"""


def test_slack_gets_a_text_by_webhook_or_by_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXT.format(safe=HALTED.alarm.safe).replace("<lost> & gone", "&lt;lost&gt; &amp; gone")
    with receiving_hook() as hook:
        monkeypatch.setenv("SLACK", f"{hook.url}/{SECRET}")
        send(settings_with(tmp_path, {"slack": {"webhook_url": "${env:SLACK}"}}))
        monkeypatch.setenv("TOKEN", SECRET)
        api = f"http://127.0.0.1:{hook.port}/api"
        bot = settings_with(tmp_path, {"slack": {"token": "${env:TOKEN}", "channel": "#payments", "api": api}})
        send(bot)
        hook.answer = {"ok": False, "error": "channel_not_found"}
        assert "Slack answers channel_not_found" in refusal(bot)
        hook.answer = [1]
        assert "Slack answers without a reason" in refusal(bot)
        hook.answer = b"<html>"
        assert "did not take a message: JSONDecodeError" in refusal(bot)
    assert hook.posts[0] == {"text": text}
    assert hook.posts[1] == {"channel": "#payments", "text": text, "unfurl_links": False}
    assert hook.paths[1] == "/api/chat.postMessage"
    assert hook.headers[1]["authorization"] == f"Bearer {SECRET}"


def test_a_mail_has_the_text_and_the_same_id_each_time(tmp_path: Path) -> None:
    with receiving_mail() as box:
        mail = {"host": "127.0.0.1", "port": box.port, "from": "frazil@example.com", "tls": "none"}
        settings = settings_with(tmp_path, {"email": mail | {"to": ["a@example.com", "b@example.com"]}})
        message = send(settings)
        send(settings)
        box.refuses = 451
        assert "did not take a message: SMTP status 451" in refusal(settings)
    first, second = box.mails
    assert first["Message-ID"] == second["Message-ID"] == f"<{message.id}@example.com>"
    assert first["To"] == "a@example.com, b@example.com"
    assert first["Subject"] == "frazil [critical] payments: stream_halted, and 1 more"
    assert first.get_content().replace("\r\n", "\n").strip() == TEXT.format(safe=HALTED.alarm.safe)


def test_a_login_is_never_sent_unencrypted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", SECRET)
    with receiving_mail() as box:
        mail = {"host": "127.0.0.1", "port": box.port, "from": "f@example.com", "to": "a@example.com"}
        login = {"username": "u", "password": "${env:PASSWORD}"}
        text = refusal(settings_with(tmp_path, {"email": mail | login}))
    assert "SMTPNotSupportedError" in text, "the server has no STARTTLS"
    assert box.logins == []


def test_a_failure_names_the_target_and_not_its_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving_hook() as hook:
        monkeypatch.setenv("HOOK", f"{hook.url}/{SECRET}")
        settings = settings_with(tmp_path, {"name": "oncall", "webhook": {"url": "${env:HOOK}"}})
        for status in (301, 404, 500):
            hook.status = status
            assert refusal(settings).startswith(f"Alert target oncall did not take a message: HTTP status {status}.")
        assert len(hook.posts) == 3, "a redirect is not followed"
    assert "Connection refused" in refusal(settings)
    monkeypatch.setenv("HOOK", f"nonsense/{SECRET}")
    assert "ValueError" in refusal(settings)
    monkeypatch.delenv("HOOK")
    text = refusal(settings)
    assert "The environment variable HOOK" in text
    assert "is not set" in text


def test_a_server_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "TIMEOUT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/hook"
        assert "did not take a message: no answer in time" in refusal(
            settings_with(tmp_path, {"webhook": {"url": url}})
        )
