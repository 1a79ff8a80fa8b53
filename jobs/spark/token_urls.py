"""Token URLs that the JVM's Kafka clients may ask: from Kafka 4.0 on a system property has to name each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jobs.spec.security import ALLOWED_URLS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def allow_token_url(spark: SparkSession, url: str | None) -> None:
    """Let Kafka's clients in the session's JVM ask for tokens at a URL, beside those that they may ask already."""
    jvm: Any = spark.sparkContext._jvm
    if url is None or jvm is None:
        return
    system = jvm.java.lang.System
    allowed = [each for each in str(system.getProperty(ALLOWED_URLS) or "").split(",") if each]
    if url not in allowed:
        system.setProperty(ALLOWED_URLS, ",".join([*allowed, url]))
