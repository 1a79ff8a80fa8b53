"""Failure of a query as Spark tells it, in a sentence that a person can read."""

from __future__ import annotations

from jobs.stream.retry import RAISED

# What Java says of a key that is encrypted as OpenSSL 3 does it by itself; Kafka's client has only the older ways.
_PBES2 = "PBES2 SecretKeyFactory not available"
_ENCRYPTED = (
    "Java cannot read the private key of kafka.security, for how it is encrypted (PBES2). Write it anew, and name the "
    "new file: openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in client.key -out client.pbes1.key"
)


def query_failure_text(problem: BaseException, limit: int = 600) -> str:
    """What Spark says at first of a query's failure: no stack traces, and of a task only what it raised."""
    # PySpark keeps what the JVM was at beside the message.
    if _PBES2 in f"{problem}{getattr(problem, '_stackTrace', '')}":
        return _ENCRYPTED
    text = str(problem).split("JVM stacktrace")[0].strip()
    before, trace, below = text.partition("Traceback (most recent call last):")
    if trace and (raised := [match[0].strip() for match in RAISED.finditer(below)]):
        text = f"{before.strip()} {raised[-1]}".strip()
    return text[:limit] + ("…" if len(text) > limit else "")
