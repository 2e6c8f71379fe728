"""An operator with one account, as a broker in JWT mode trusts it: made anew for a test, with real keys and
signatures."""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Any

import nkeys
import orjson

UNLIMITED = dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1)
STREAMS_TOO = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
CREDENTIALS = """-----BEGIN NATS USER JWT-----
{token}
------END NATS USER JWT------

-----BEGIN USER NKEY SEED-----
{seed}
------END USER NKEY SEED------
"""


class Key:
    """A key pair of one of the broker's kinds."""

    def __init__(self, prefix: int) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), prefix)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public = self._pair.public_key.decode()

    def sign(self, data: bytes) -> bytes:
        return bytes(self._pair.sign(data))


class Operator:
    """`block` makes a broker trust it; `credentials` lets somebody in."""

    def __init__(self) -> None:
        self._operator = Key(nkeys.PREFIX_BYTE_OPERATOR)
        self.account, self._system = Key(nkeys.PREFIX_BYTE_ACCOUNT), Key(nkeys.PREFIX_BYTE_ACCOUNT)

    def block(self) -> str:
        """For the broker's configuration."""
        operator = _token(self._operator, self._operator.public, "operator", {})
        accounts = {self.account: {**UNLIMITED, **STREAMS_TOO}, self._system: UNLIMITED}
        preload = ", ".join(f'{key.public}: "{self._account(key, limits)}"' for key, limits in accounts.items())
        resolver = f"resolver: MEMORY\nresolver_preload: {{ {preload} }}"
        return f'operator: "{operator}"\nsystem_account: {self._system.public}\n{resolver}'

    def _account(self, key: Key, limits: dict[str, int]) -> str:
        return _token(self._operator, key.public, "account", {"limits": {**limits, "wildcards": True}})

    def credentials(self, path: Path) -> Path:
        """Write a credentials file for a new user of the account."""
        user = Key(nkeys.PREFIX_BYTE_USER)
        token = _token(self.account, user.public, "user", {"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1})
        path.write_text(CREDENTIALS.format(token=token, seed=user.seed.decode()))
        return path


def _token(issuer: Key, subject: str, kind: str, more: dict[str, Any]) -> str:
    head = {"typ": "JWT", "alg": "ed25519-nkey"}
    claims = {
        "jti": base64.b32encode(os.urandom(20)).decode(),
        "iat": 1_700_000_000,
        "iss": issuer.public,
        "name": kind,
        "sub": subject,
        "nats": {**more, "type": kind, "version": 2},
    }
    signed = b".".join(_encoded(orjson.dumps(part)) for part in (head, claims))
    return (signed + b"." + _encoded(issuer.sign(signed))).decode()


def _encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
