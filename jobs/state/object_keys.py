"""Keys of an S3 client that are read for each request, since whoever hands them out may replace them meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.errors import FrazilError

KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def session_with_keys(options: Mapping[str, str]) -> Any:
    """A botocore session for clients with these keys, or with those that AWS's tools would find where there are none.

    Args:
        options: Of a client; asked for the keys again and again.
    """
    from botocore.credentials import CredentialProvider, Credentials, ReadOnlyCredentials
    from botocore.session import Session

    session: Any = Session()
    if KEYS[0] not in options:
        return session

    class PresentKeys(Credentials):
        def get_frozen_credentials(self) -> Any:
            try:
                found = [options.get(name) for name in KEYS]
            except FrazilError:
                # A file that is being replaced, perhaps: those of before are still the best.
                return super().get_frozen_credentials()
            self.access_key, self.secret_key, self.token = found
            return ReadOnlyCredentials(*found)

    class Provider(CredentialProvider):
        METHOD = CANONICAL_NAME = "frazil"

        def load(self) -> Any:
            return PresentKeys(*(options.get(name) for name in KEYS))

    session.get_component("credential_provider").insert_before("env", Provider())
    return session
