"""URL of a service in the settings: where it is, and how it is spoken to; its secrets stand beside it as references."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from jobs.spec.secrets import literal_secret_problem
from jobs.spec.written_secret import POSTGRES_SECRETS, secret_parameters


def service_url(value: str, schemes: tuple[str, ...], examples: str, *, others: str = "") -> tuple[str, SplitResult]:
    """Check that a text is the URL of a service, and holds no secret.

    Args:
        value: As the file has it.
        schemes: Those that are known.
        examples: For the message: `such as …`.
        others: What is said of other schemes besides.

    Returns:
        The URL without space around it and without a slash at its end; and its parts.

    Raises:
        ValueError: It is none, or holds a secret. The message repeats nothing of it but a parameter's name.
    """
    url = value.strip().rstrip("/")
    if "${" in url:
        raise ValueError("is not a secret; write the password as ${env:NAME} under properties")
    try:
        parts = urlsplit(url)
        _ = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"must be a URL {examples}") from None
    if parts.scheme not in schemes:
        known = " or ".join(f"{each}://" for each in schemes)
        raise ValueError(f"must begin with {known}, {examples}{others}")
    if parts.password is not None:
        raise ValueError(
            "has a password in it, and a password must not stand in the file; write password: ${env:NAME} under "
            "properties"
        )
    for key in secret_parameters(url):
        if key in POSTGRES_SECRETS:
            raise ValueError(
                f"has {key} in it, and a secret must not stand in the file; write {key}: ${{env:NAME}} under properties"
            )
    if secret_parameters(url) or literal_secret_problem("url", url):
        raise ValueError("has a password or another secret in it, which must not stand in the file")
    return url, parts
