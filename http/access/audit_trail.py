"""Writes down who changes what, before it is changed, and every refusal.

Starts, signals and events are not written down here: their own log says who did it. While the API is open there is
nobody to name, so only refusals are written down, and what is done to keys.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from falcon.asgi import Request, Response
from msgspec import Struct
from uuid_utils import uuid7

from penstock.broker.records.audit import AuditEntry
from penstock.config.limits import REFUSALS_BURST, REFUSALS_PER_S
from penstock.config.logging import get_logger
from penstock.engine.errors import PenstockError, Unavailable
from penstock.engine.times import rfc3339
from penstock.http.backend import Backend
from penstock.http.messages.audited import audit_note
from penstock.http.messages.callers import caller_of
from penstock.http.messages.errors import was_refused
from penstock.http.middleware.credentials import Credentials

ON_CHARS_MAX = 300
NOBODY = "anonymous"
BY_APPROVAL_TOKEN = "approval token"  # noqa: S105 - what it was done with
UNKNOWN, DONE, REFUSED, FAILED = "unknown", "done", "refused", "failed"

log = get_logger()


class Audited(Struct, frozen=True):
    """An operation that is written down. `one_time`: who does it shows the token of an approval."""

    name: str
    always: bool = False
    one_time: bool = False


class _Pending(NamedTuple):
    entry_id: str
    entry: AuditEntry


class _Named(Struct, frozen=True):
    """What was made: by its name, or a run by its id."""

    name: str = ""
    run_id: str = ""


_NAMED = msgspec.json.Decoder(_Named)


class AuditTrail:
    """Part of every application, after what refuses."""

    def __init__(self, backend: Backend, credentials: Credentials, audited: Mapping[tuple[str, str], Audited]) -> None:
        """`audited` is by method and path template."""
        self._backend, self._credentials, self._audited = backend, credentials, audited
        self._budget = _Budget()

    async def process_resource(self, req: Request, resp: Response, resource: object, params: dict[str, Any]) -> None:
        """Write the change down. Raises Unavailable, so that nothing is changed without an entry."""
        found = self._audited.get((req.method, req.uri_template or ""))
        if found is None or not (self._credentials.needed or found.always):
            return
        who = BY_APPROVAL_TOKEN if found.one_time else caller_of(req).name or NOBODY
        pending = _Pending(uuid7().hex, _entry(req, who, found.name, UNKNOWN))
        try:
            await self._backend.store.audit.write(*pending)
        except Unavailable as error:
            raise Unavailable(f"nothing was changed, as the audit log cannot be written: {error}") from error
        req.context.audit = pending

    async def process_response(self, req: Request, resp: Response, resource: object, req_succeeded: bool) -> None:
        pending: _Pending | None = getattr(req.context, "audit", None)
        try:
            if pending is not None:
                await self._backend.store.audit.write(pending.entry_id, _ended(pending.entry, resp, audit_note(req)))
            elif was_refused(req):
                await self._refused(req, resp.status_code)
        except PenstockError as error:
            log.warning("audit_incomplete", path=req.path, error=str(error))

    async def _refused(self, req: Request, status: int) -> None:
        more = self._budget.take(time.monotonic())
        if more is None:
            return
        audited = self._audited.get((req.method, req.uri_template or ""))
        what = audited.name if audited else f"{req.method} {req.uri_template or ''}".strip()
        entry = _entry(req, caller_of(req).name or NOBODY, what, REFUSED)
        await self._backend.store.audit.write_refusal(msgspec.structs.replace(entry, status=status, more=more))


class _Budget:
    """How many refusals one process writes down: a burst, then some each second."""

    def __init__(self) -> None:
        self._tokens, self._at, self._more = float(REFUSALS_BURST), 0.0, 0

    def take(self, now: float) -> int | None:
        """How many were not written down since the last one that was; None if this one is not, either."""
        self._tokens = min(REFUSALS_BURST, self._tokens + (now - self._at) * REFUSALS_PER_S)
        self._at = now
        if self._tokens < 1:
            self._more += 1
            return None
        more, self._more = self._more, 0
        self._tokens -= 1
        return more


def _entry(req: Request, who: str, what: str, outcome: str) -> AuditEntry:
    client = req.scope.get("client")
    return AuditEntry(
        at=rfc3339(time.time()),
        who=who,
        what=what,
        on=req.path[:ON_CHARS_MAX],
        origin=client[0] if client else "local",
        outcome=outcome,
    )


def _ended(entry: AuditEntry, resp: Response, note: str) -> AuditEntry:
    """The entry with its outcome; of what was made, with its name; of a request for many runs, with which."""
    status = resp.status_code
    if note:
        entry = msgspec.structs.replace(entry, on=f"{entry.on}?{note}"[:ON_CHARS_MAX])
    if status >= 400:
        return msgspec.structs.replace(entry, outcome=REFUSED if status in (401, 403) else FAILED, status=status)
    made = _NAMED.decode(resp.data) if status == 201 and resp.data else _Named()
    on = f"{entry.on}/{made.name or made.run_id}" if made.name or made.run_id else entry.on
    return msgspec.structs.replace(entry, on=on, outcome=DONE, status=status)
