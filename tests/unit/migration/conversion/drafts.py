"""Drafts of connectors that tests write down as keys."""

from __future__ import annotations

from collections.abc import Callable

from jobs.migration.connectors.model import Connector, Place, Sources, settings_of
from jobs.migration.conversion.draft import Draft, SettingsDraft

PLACE = Place("test.json")


def connector_of(connector_class: str, keys: dict[str, str], name: str = "c") -> Connector:
    """Connector with some keys.

    Args:
        connector_class: Its class, also its key `connector.class`.
        keys: The other keys.
        name: Its name.
    """
    settings, _ = settings_of(
        (key, value, PLACE) for key, value in {"connector.class": connector_class, **keys}.items()
    )
    return Connector(name, connector_class, settings, PLACE)


def converted(convert: Callable[[Draft], None], connector: Connector, *others: Connector) -> Draft:
    """Draft that a converter has filled.

    Args:
        convert: The converter.
        connector: The connector.
        others: Other connectors of the import.
    """
    draft = Draft(connector, Sources((connector, *others)), SettingsDraft())
    convert(draft)
    return draft
