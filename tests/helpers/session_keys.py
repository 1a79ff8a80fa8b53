"""Keys of S3 that end: sessions of SeaweedFS's STS, of any length, signed here as the server signs its own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SIGNING = b"a-signing-key-of-the-tests-alone"
_ISSUER, _ROLE, _POLICY = "frazil-tests", "arn:aws:iam::role/Session", "Everything"


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


# What any session may do at most; each has a policy of its own beside it.
IAM_CONFIG: dict[str, Any] = {
    "sts": {
        "issuer": _ISSUER,
        "signingKey": _text(_SIGNING),
        "tokenDuration": "1h",
        "maxSessionLength": "12h",
    },
    "policies": [
        {
            "name": _POLICY,
            "document": {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Action": ["s3:*"], "Resource": ["arn:aws:s3:::*"]}],
            },
        }
    ],
    "roles": [
        {
            "roleName": "Session",
            "roleArn": _ROLE,
            "trustPolicy": {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole"]}],
            },
            "attachedPolicies": [_POLICY],
        }
    ],
}


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """Keys of one session.

    Attributes:
        ends: End of the keys, seconds since 1970.
    """

    access: str
    secret: str
    token: str
    ends: int

    def properties(self, *, told: bool = True) -> dict[str, str]:
        """Properties with the keys, as a catalog vends them; with `told`, the time of their expiry is included."""
        ends = {"s3.session-token-expires-at-ms": str(self.ends * 1000)} if told else {}
        return {
            "s3.access-key-id": self.access,
            "s3.secret-access-key": self.secret,
            "s3.session-token": self.token,
            **ends,
        }


def session_keys(seconds: int, policy: Mapping[str, Any] | None = None) -> SessionKeys:
    """Create session keys for the tests' server (`object_server`).

    Args:
        seconds: Lifetime of the keys.
        policy: Policy of the keys in AWS's format; None to allow everything.
    """
    now, session = int(time.time()), uuid.uuid4().hex
    assumed = f"arn:aws:sts::000000000000:assumed-role/Session/{session}"
    claims = {
        "iss": _ISSUER,
        "sub": session,
        "jti": session,
        "sid": session,
        "snam": session,
        "typ": "session",
        "iat": now,
        "nbf": now,
        "exp": now + seconds,
        "role": _ROLE,
        "pol": [_POLICY],
        "assumed": assumed,
        "principal": assumed,
        "spol": json.dumps(policy) if policy else "",
    }
    signed = f"{_url(json.dumps({'alg': 'HS256', 'typ': 'JWT'}).encode())}.{_url(json.dumps(claims).encode())}"
    return SessionKeys(
        "ASIA" + hashlib.sha256(f"access-key:{session}".encode()).hexdigest()[:16],
        _text(_digest(f"secret-key:{session}")),
        f"{signed}.{_url(_digest(signed))}",
        now + seconds,
    )


def _digest(text: str) -> bytes:
    return hmac.new(_SIGNING, text.encode(), hashlib.sha256).digest()


def _url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
