"""The bodies of responses about keys, sessions and the audit log. As views.py of the client says."""

from __future__ import annotations

from msgspec import Struct, field


class KeyView(Struct, frozen=True, omit_defaults=True):
    """`workflow` is the pattern of the workflows that it is for, absent for all; `by` is who created it."""

    name: str
    scope: str
    created_at: str
    workflow: str | None = None
    expires_at: str | None = None
    by: str | None = None


class CreatedKey(Struct, frozen=True, omit_defaults=True):
    """`key` is the key itself: no other answer has it. The rest as in KeyView."""

    name: str
    scope: str
    key: str
    created_at: str
    workflow: str | None = None
    expires_at: str | None = None
    by: str | None = None


class RevokedKey(Struct, frozen=True):
    name: str
    status: str = "revoked"


class AuditView(Struct, frozen=True, omit_defaults=True):
    """An entry of the audit log. `on` is the path of what was changed, of many runs with their workflow; `origin`,
    `from` in JSON, the address of the client. `outcome` is done, refused, failed or unknown. `more`: as many refusals
    before it were only counted."""

    at: str
    who: str
    what: str
    on: str
    origin: str = field(name="from")
    outcome: str
    status: int | None = None
    more: int = 0


class SessionView(Struct, frozen=True, omit_defaults=True):
    """Who one is: the name and scope of the key, and the pattern of workflows that it is for. Without a name, the API
    is open. `csrf_token` goes with changes by cookie, as the header X-CSRF-Token; `expires_at` is when a new session
    ends."""

    scope: str
    name: str | None = None
    workflow: str | None = None
    csrf_token: str | None = None
    expires_at: str | None = None


class SignedOut(Struct, frozen=True):
    status: str = "signed out"
