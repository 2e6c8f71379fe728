"""Approvals from outside the engine: the request with its one-time token, the word to whoever may decide, and the decision.

A decision is appended only where the step was seen undecided at the very end of the history, so of many that come at once the
broker takes one. The bucket with the tokens' hashes is for operators; the log is what counts.
"""

from __future__ import annotations

import secrets
import time
from hmac import compare_digest

import msgspec
from msgspec import Struct

from penstock.actors.loading import load
from penstock.broker import names
from penstock.broker.store import Store
from penstock.config.crash_points import reached
from penstock.config.limits import APPROVAL_TOKEN_BYTES
from penstock.engine.approvals import has_expired, token_hash
from penstock.engine.commands import OpenApproval, RequestApproval
from penstock.engine.errors import Conflict, Denied, NotFound, Unavailable
from penstock.engine.events import ApprovalGranted, ApprovalRejected, ApprovalRequest, ApprovalRequested, Decision
from penstock.engine.state import Run, RunStatus, StepStatus
from penstock.engine.times import rfc3339

TRIES_MAX = 100  # other events of the run may come between the look and the decision

INVALID = "the token is not valid for this step, or no longer"


class Kept(Struct, frozen=True):
    """An entry of the bucket: the token's SHA-256, never the token."""

    sha256: str
    attempt: int
    expires_at: str


class Notice(Struct, frozen=True, omit_defaults=True):
    """What the subject of the definition is told. `path` is where the decision goes, with action and token in its query."""

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
        run_id=run.run_id, step_id=command.step_id, timestamp=rfc3339(time.time()), attempt_number=command.attempt, payload=request
    )


async def open_approval(store: Store, run: Run, command: OpenApproval) -> None:
    """Keep the hash of the token that the log holds, and tell the subject, perhaps more than once. Raises Unavailable."""
    request = command.request
    kept = Kept(token_hash(request.token), command.attempt, request.expires_at)
    await store.approval_tokens.send(names.step_key(run.run_id, command.step_id), msgspec.json.encode(kept))
    reached("approval.token_stored")
    if request.subject is not None:
        message_id = names.approval_notice_id(run.run_id, command.step_id, command.attempt)
        await store.broker.publish(request.subject, _notice(run, command), headers={names.MSG_ID: message_id})


async def decide(store: Store, run_id: str, step_id: str, token: str, decision: Decision, *, granted: bool) -> None:
    """Approve or reject, once. Raises NotFound for an unknown run, Denied for a token that is not (or no longer) valid,
    Conflict for one that was used, Unavailable (outcome unknown)."""
    for _ in range(TRIES_MAX):
        loaded = await load(store, run_id)
        if loaded.run is None:
            raise NotFound(f"run {run_id} does not exist")
        _check(loaded.run, step_id, token, await store.history.now())
        if await store.history.append_next(_event(loaded.run, step_id, decision, granted=granted), loaded.last_seq):
            reached("approval.decided")
            return
    raise Unavailable(f"run {run_id} has too many events at this moment, try again")


def _check(run: Run, step_id: str, token: str, now: float) -> None:
    step = run.steps.get(step_id)
    if step is None or step.token is None or not compare_digest(token_hash(token), step.token):
        raise Denied(INVALID)
    if step.status is StepStatus.COMPLETED or (step.status is StepStatus.FAILED and not has_expired(step)):
        raise Conflict(f'the token was used already: step "{step_id}" is decided')
    if run.status is not RunStatus.RUNNING or run.error is not None or step.due is None or now >= step.due:
        raise Denied(INVALID)


def _event(run: Run, step_id: str, decision: Decision, *, granted: bool) -> ApprovalGranted | ApprovalRejected:
    kind = ApprovalGranted if granted else ApprovalRejected
    attempt = run.steps[step_id].attempts
    return kind(run_id=run.run_id, step_id=step_id, timestamp=rfc3339(time.time()), attempt_number=attempt, payload=decision)


def _notice(run: Run, command: OpenApproval) -> bytes:
    request = command.request
    return msgspec.json.encode(
        Notice(
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
