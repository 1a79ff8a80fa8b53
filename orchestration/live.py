"""Quick looks at what is live, for commands that must answer within seconds and work without any of it."""

from __future__ import annotations

from datetime import timedelta

from jobs.runtime.kafka_log import KafkaLog
from jobs.runtime.quick_catalog import CATALOG_SECONDS, NoCatalogYet, find_table, quick_catalog
from jobs.spec.settings import KafkaSettings

__all__ = ["CATALOG_SECONDS", "KAFKA_SECONDS", "NoCatalogYet", "find_table", "quick_catalog", "quick_kafka"]

KAFKA_SECONDS = 4.0


def quick_kafka(settings: KafkaSettings) -> KafkaLog:
    """A connection that gives up after some seconds.

    Raises:
        FrazilError: The local broker is not running, or a secret is not set.
    """
    quick = min(settings.request_timeout, timedelta(seconds=KAFKA_SECONDS))
    return KafkaLog(settings.model_copy(update={"request_timeout": quick}))
