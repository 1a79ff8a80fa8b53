"""Monitoring blocks of the settings: receivers of messages about streams, and service discovery of Prometheus."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from jobs.config.documents.base import LocalPath, Problems, SpecModel
from jobs.config.documents.secrets import Properties, Secret, literal_secret_problem, secrets_in
from jobs.config.services.security import TextOrSecret

Severity = Literal["info", "warning", "critical"]
"""How urgent an alarm is: `critical` needs a person now, `warning` today, `info` whenever there is time."""
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
SLACK_API = "https://slack.com/api"


def _url(value: str) -> str:
    url = value.strip()
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError("must be a URL such as https://alerts.example/hook") from None
    if parts.scheme not in ("http", "https") or not host or re.search(r"\s", url):
        raise ValueError("must begin with http:// or https:// and a host, such as https://alerts.example/hook")
    if problem := literal_secret_problem("url", url):
        raise ValueError(problem)
    return url


def _url_or_secret(value: str | Secret) -> str | Secret:
    return value if isinstance(value, Secret) else _url(value)


def _address(value: str) -> str:
    if not re.fullmatch(r"[^@\s<>,]+@[^@\s<>,]+", value):
        raise ValueError("must be an e-mail address, such as oncall@example.com")
    return value


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _name(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", value):
        raise ValueError("must be a name of small letters, digits, _ and -, such as oncall")
    return value


def _not_empty(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("must not be empty")
    return value


Url = Annotated[str, AfterValidator(_url)]
Address = Annotated[str, AfterValidator(_address)]


class WebhookSettings(SpecModel):
    """An HTTP endpoint that takes messages as JSON by POST.

    Args:
        url: The endpoint's address; a reference where it holds a token.
        headers: Headers of each request, such as `Authorization: Bearer ${env:TOKEN}`.
    """

    example = "{url: '${env:ALERT_WEBHOOK}'}"

    url: Annotated[TextOrSecret, AfterValidator(_url_or_secret)]
    headers: Properties = Field(default_factory=dict)


class SlackSettings(SpecModel):
    """A channel in Slack: an incoming webhook, or a bot's token with the channel's name.

    Args:
        webhook_url: Address of an incoming webhook; it holds a token, so it is a reference.
        token: Token of a bot with the scope `chat:write`.
        channel: Channel that the bot writes to, such as `#payments`.
        api: Address of the API, for services that speak Slack's.
    """

    example = "{webhook_url: '${env:SLACK_WEBHOOK}'}"

    webhook_url: Secret | None = None
    token: Secret | None = None
    channel: str | None = None
    api: Url = SLACK_API

    def _problems(self) -> Problems:
        if (self.webhook_url is None) == (self.token is None):
            yield ("webhook_url",), "needs one of webhook_url: ${env:NAME} and token: ${env:NAME}"
        elif (self.token is None) != (self.channel is None):
            yield ("channel",), "belongs to token; an incoming webhook has a channel of its own"


class EmailSettings(SpecModel):
    """A mail server, and who receives messages.

    Args:
        host: Host of the mail server.
        port: Port of the mail server. Without it, 587, 465 or 25 as ``tls`` says.
        sender: Address that messages come from.
        to: Addresses that receive messages.
        username: User of the mail server.
        password: Password of the user, as a secret reference.
        tls: `starttls` encrypts after connecting, `tls` from the first byte, `none` never.
    """

    example = "{host: mail.example.com, from: frazil@example.com, to: [oncall@example.com]}"

    host: str
    port: Annotated[int, Field(ge=1, le=65535, strict=True)] | None = None
    sender: Annotated[Address, Field(alias="from")]
    to: Annotated[tuple[Address, ...], BeforeValidator(_several), AfterValidator(_not_empty)]
    username: TextOrSecret | None = None
    password: Secret | None = None
    tls: Literal["starttls", "tls", "none"] = "starttls"

    def _problems(self) -> Problems:
        if (self.username is None) != (self.password is None):
            yield ("password",), "belongs to username; write both or neither"
        if self.password is not None and self.tls == "none":
            yield ("tls",), "would send the password in the clear; write starttls or tls"

    @property
    def server_port(self) -> int:
        """The port to connect to: the configured one, else the usual one for `tls`."""
        return self.port or {"starttls": 587, "tls": 465, "none": 25}[self.tls]


class AlertTarget(SpecModel):
    """One receiver of messages, with what it wants to hear of.

    Args:
        name: Name of the target in messages. Without it, its type and number.
        webhook: HTTP endpoint. Exactly one of ``webhook``, ``slack`` and ``email`` is given.
        slack: Channel in Slack.
        email: Addresses behind a mail server.
        streams: Names of streams, with `*` for any letters; what concerns no single stream reaches every target.
        severity: The least severity that is sent.
    """

    example = "{webhook: {url: '${env:ALERT_WEBHOOK}'}}"

    name: Annotated[str, AfterValidator(_name)] | None = None
    webhook: WebhookSettings | None = None
    slack: SlackSettings | None = None
    email: EmailSettings | None = None
    streams: Annotated[tuple[str, ...], BeforeValidator(_several), AfterValidator(_not_empty)] = ("*",)
    severity: Severity = "warning"

    def _problems(self) -> Problems:
        chosen = [name for name in ("webhook", "slack", "email") if getattr(self, name) is not None]
        if len(chosen) != 1:
            yield ("webhook",), "needs exactly one of webhook, slack and email"

    @property
    def channel(self) -> WebhookSettings | SlackSettings | EmailSettings:
        """The channel of the target."""
        chosen = self.webhook or self.slack or self.email
        assert chosen is not None
        return chosen

    def wants(self, stream: str, severity: Severity) -> bool:
        """Whether an alarm of this stream and severity is sent to the target.

        Args:
            stream: Name of the stream; empty for an alarm that concerns no single stream.
        """
        if SEVERITIES.index(severity) < SEVERITIES.index(self.severity):
            return False
        return not stream or any(fnmatchcase(stream, pattern) for pattern in self.streams)


class AlertsSettings(SpecModel):
    """Messages about streams that need somebody.

    Args:
        targets: Who receives them.
        dagster_url: Address of Dagster's web UI, for links in messages.
        runbooks: Address of the runbooks: a page's name is appended, or replaces `{page}`; None: messages name the
            page.
    """

    example = "{targets: [{webhook: {url: '${env:ALERT_WEBHOOK}'}}]}"

    targets: tuple[AlertTarget, ...] = ()
    dagster_url: Url | None = None
    runbooks: Url | None = None

    def _problems(self) -> Problems:
        seen: set[str] = set()
        for index, name in enumerate(self.names):
            if name in seen:
                yield ("targets", index, "name"), f"{name} is the name of another target, too"
            seen.add(name)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the targets, in their order."""
        kinds = [
            next(kind for kind in ("webhook", "slack", "email") if getattr(target, kind)) for target in self.targets
        ]
        return tuple(
            target.name or f"{kind}-{number}"
            for number, (target, kind) in enumerate(zip(self.targets, kinds, strict=True), 1)
        )

    @property
    def secrets(self) -> Iterator[Secret]:
        """Yield the secret references of all targets."""
        return secrets_in(self.targets)

    def runbook(self, page: str) -> str:
        """Return the address of a runbook, or its page in frazil's documentation."""
        if self.runbooks is None:
            return f"docs/runbooks/{page}.md"
        if "{page}" in self.runbooks:
            return self.runbooks.replace("{page}", page)
        return f"{self.runbooks.rstrip('/')}/{page}"


class MetricsSettings(SpecModel):
    """How Prometheus finds the drivers of a machine.

    Args:
        folder: Folder of the service-discovery files, one for each driver that runs here; other users may read them.
            None: `metrics` in the state folder, for this user alone.
    """

    example = "{folder: /var/lib/frazil/metrics}"

    folder: LocalPath | None = None
