"""What the audit log says of a request besides its path: which runs a request for many was about."""

from __future__ import annotations

from urllib.parse import urlencode

from falcon.asgi import Request


def note_many(req: Request, workflow: str | None, *, dry_run: bool) -> None:
    """Have the audit log say that the request was about runs of this workflow (None: of all), and whether it was to
    change nothing."""
    named = {} if workflow is None else {"workflow_id": workflow}
    req.context.audit_note = urlencode({**named, **({"dry_run": "true"} if dry_run else {})})


def audit_note(req: Request) -> str:
    """What was noted, in the form of a query string; empty without."""
    found: str = getattr(req.context, "audit_note", "")
    return found
