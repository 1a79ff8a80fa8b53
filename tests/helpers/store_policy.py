"""Policies of S3 that docs/how-to/least-privilege.md has, for other folders than its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "least-privilege.md"
_FOLDERS = {"tables": "lake/warehouse", "state": "lake/frazil"}


def documented_policy(of: Literal["tables", "state"], folder: str) -> dict[str, Any]:
    """The actions that the page grants.

    Args:
        of: Whether the policy is for tables or for the state.
        folder: Folder of the store, such as `s3://BUCKET/FOLDER`.
    """
    path, documented = folder.removeprefix("s3://"), _FOLDERS[of]
    blocks = re.findall(r"^```json\n(.+?)^```", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    found = [each for each in blocks if documented in each]
    assert len(found) == 1
    bucket = path.partition("/")[0]
    text = found[0].replace(f":::{documented}/", f":::{path}/").replace(':::lake"', f':::{bucket}"')
    policy: dict[str, Any] = json.loads(text)
    return policy
