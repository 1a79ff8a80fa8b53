"""Delivery of a message to a webhook, to Slack or to a mail server. Errors name the target, and never its address."""

from __future__ import annotations

import json
import smtplib
import ssl
import urllib.error
import urllib.request
from email.message import EmailMessage
from email.utils import formatdate
from http.client import HTTPException
from typing import Any

from jobs.base.errors import FrazilError
from jobs.base.system.deadline import within
from jobs.config.documents.secrets import reveal, revealed
from jobs.config.redaction import redacted
from jobs.config.services.monitoring import AlertTarget, EmailSettings, SlackSettings, WebhookSettings
from orchestration.alerts.messages import Message

# Timeout of one connection; the whole delivery has a little more.
TIMEOUT_SECONDS = 8.0
_DEADLINE_SECONDS = 10.0
_MOST_ANSWER = 65_536
_MOST_PROBLEM = 200


class DeliveryError(FrazilError):
    """A target did not take a message.

    Safe: The message waits, and is sent again.
    Next: check the target under `alerts` in the settings; then `frazil validate`
    """


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET without its document."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        """Refuse to follow a redirect, so that it counts as an error."""


def deliver(name: str, target: AlertTarget, message: Message) -> None:
    """Deliver a message to a target.

    Raises:
        DeliveryError: The target did not take it, or a secret of its settings is missing. It may have arrived all the
            same, if the answer was lost.
    """
    channel = target.channel
    try:
        within(_DEADLINE_SECONDS, f"alert target {name}", lambda: _SENDERS[type(channel)](channel, message))
    except urllib.error.HTTPError as problem:
        problem.close()
        raise _refusal(name, f"HTTP status {problem.code}", message) from None
    except urllib.error.URLError as problem:
        raise _refusal(name, _reason(problem.reason), message) from None
    except FrazilError as problem:
        raise _refusal(name, problem.message, message, problem.fix) from None
    except (OSError, HTTPException, smtplib.SMTPException, ValueError) as problem:
        # Texts of such errors may quote an address, and so a token.
        raise _refusal(name, _reason(problem), message) from None


def _reason(problem: object) -> str:
    if isinstance(problem, smtplib.SMTPResponseException):
        return f"SMTP status {problem.smtp_code}"
    if isinstance(problem, TimeoutError):
        return "no answer in time"
    if isinstance(problem, OSError) and problem.strerror and not isinstance(problem, ssl.SSLError):
        return problem.strerror
    return type(problem).__name__


def _refusal(name: str, why: str, message: Message, fix: str | None = None) -> DeliveryError:
    text = redacted(message.settings, why).rstrip(".")
    return DeliveryError(
        f"Alert target {name} did not take a message: {text[:_MOST_PROBLEM]}.",
        fix=fix or "correct alerts.targets in frazil.yaml, or see to the service",
    )


def _post(url: str, document: Any, headers: dict[str, str], message: Message) -> bytes:
    request = urllib.request.Request(
        url,
        data=json.dumps(document).encode(),
        headers={"Content-Type": "application/json; charset=utf-8", "Idempotency-Key": message.id, **headers},
        method="POST",
    )
    with urllib.request.build_opener(_NoRedirects()).open(request, timeout=TIMEOUT_SECONDS) as answer:
        return answer.read(_MOST_ANSWER)


def _send_to_webhook(settings: WebhookSettings, message: Message) -> None:
    _post(reveal(settings.url), message.document, revealed(settings.headers), message)


def _send_to_slack(settings: SlackSettings, message: Message) -> None:
    # Slack reads these three as markup.
    text = message.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if settings.webhook_url is not None:
        _post(settings.webhook_url.reveal(), {"text": text}, {}, message)
        return
    assert settings.token is not None
    bearer = {"Authorization": f"Bearer {settings.token.reveal()}"}
    document = {"channel": settings.channel, "text": text, "unfurl_links": False}
    answer = json.loads(_post(f"{settings.api.rstrip('/')}/chat.postMessage", document, bearer, message))
    # Slack answers with status 200 whatever happened.
    if not isinstance(answer, dict) or answer.get("ok") is not True:
        reason = answer.get("error") if isinstance(answer, dict) else None
        raise FrazilError(f"Slack answers {reason or 'without a reason'}")


def _send_by_mail(settings: EmailSettings, message: Message) -> None:
    mail = EmailMessage()
    mail["From"], mail["To"] = settings.sender, ", ".join(settings.to)
    mail["Subject"], mail["Date"] = f"frazil {message.subject}", formatdate()
    # The same message once more has the same id.
    mail["Message-ID"] = f"<{message.id}@{settings.sender.rpartition('@')[2]}>"
    mail.set_content(message.text)
    place = (settings.host, settings.server_port)
    context = ssl.create_default_context()
    if settings.tls == "tls":
        server: smtplib.SMTP = smtplib.SMTP_SSL(*place, timeout=TIMEOUT_SECONDS, context=context)
    else:
        server = smtplib.SMTP(*place, timeout=TIMEOUT_SECONDS)
    with server:
        if settings.tls == "starttls":
            server.starttls(context=context)
        if settings.username is not None and settings.password is not None:
            server.login(reveal(settings.username), settings.password.reveal())
        server.send_message(mail)


_SENDERS: dict[type, Any] = {
    WebhookSettings: _send_to_webhook,
    SlackSettings: _send_to_slack,
    EmailSettings: _send_by_mail,
}
