"""How long credentials hold, as a catalog says it."""

from __future__ import annotations

import pytest

from jobs.write.file_access import seconds_left


@pytest.mark.parametrize(
    ("properties", "left"),
    [
        ({}, None),
        ({"s3.session-token": "x", "s3.access-key-id": "y"}, None),
        ({"s3.session-token-expires-at-ms": "160000"}, 60.0),
        ({"s3.session-token-expires-at-ms": 160000, "gcs.oauth2.token-expires-at": "130000"}, 30.0),
        ({"adls.sas-token-expires-at-ms.account.dfs.core.windows.net": "90000"}, 0.0),
        ({"s3.session-token-expires-at-ms": "soon"}, None),
    ],
)
def test_the_shortest_counts(properties: dict[str, object], left: float | None) -> None:
    assert seconds_left(properties, 100.0) == left
