"""Approval requests: the event with a one-time token, and the notice to the people who decide.

The control plane takes the decision (control/approvals.py).
"""

from __future__ import annotations

import secrets
import time

import msgspec
from msgspec import Struct

from penstock.broker import message_ids, record_keys
from penstock.broker.nats.headers import MSG_ID
from penstock.broker.store import Store
from penstock.config.limits import APPROVAL_TOKEN_BYTES
from penstock.config.process.crash_points import reached
from penstock.engine.run.commands import OpenApproval, RequestApproval
from penstock.engine.run.event_payloads import ApprovalRequest
from penstock.engine.run.events import ApprovalRequested
from penstock.engine.run.kinds.approval import token_hash
from penstock.engine.run.state import Run
from penstock.engine.times import rfc3339


class ApprovalToken(Struct, frozen=True):
    """An entry of the bucket: the token's SHA-256, never the token."""

    sha256: str
    attempt: int
    expires_at: str


class ApprovalNotice(Struct, frozen=True, omit_defaults=True):
    """The message on the subject that the definition names. The decision is sent to `path`, with action and token in
    its query."""

    run_id: str
    workflow: str
    step_id: str
    token: str
    expires_at: str
    path: str
    description: str | None = None
    metadata: dict[str, str] | None = None
    type: str = msgspec.field(default="approval.requested")


def approval_request(run: Run, command: RequestApproval) -> ApprovalRequested:
    """The event that asks for the decision, with a new token."""
    request = ApprovalRequest(
        token=secrets.token_hex(APPROVAL_TOKEN_BYTES),
        expires_at=rfc3339(command.expires),
        subject=command.subject,
        description=command.description,
        metadata=command.metadata,
    )
    return ApprovalRequested(
        run_id=run.run_id,
        step_id=command.step_id,
        timestamp=rfc3339(time.time()),
        attempt_number=command.attempt,
        payload=request,
    )


async def open_approval(store: Store, run: Run, command: OpenApproval) -> None:
    """Store the hash of the token that is in the log, and publish the notice, perhaps more than once. Raises
    Unavailable."""
    request = command.request
    stored = ApprovalToken(token_hash(request.token), command.attempt, request.expires_at)
    await store.approval_tokens.send(record_keys.step_key(run.run_id, command.step_id), msgspec.json.encode(stored))
    reached("approval.token_stored")
    if request.subject is not None:
        message_id = message_ids.of_approval_notice(run.run_id, command.step_id, command.attempt)
        await store.broker.publish(request.subject, _notice(run, command), headers={MSG_ID: message_id})


def _notice(run: Run, command: OpenApproval) -> bytes:
    request = command.request
    return msgspec.json.encode(
        ApprovalNotice(
            run.run_id,
            run.workflow_id,
            command.step_id,
            request.token,
            request.expires_at,
            f"/runs/{run.run_id}/approval/{command.step_id}",
            request.description,
            request.metadata,
        )
    )
