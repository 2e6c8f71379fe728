"""Approvals from outside the engine: the list of steps that wait for a decision, and the decision.

A decision needs the step's token, or the rights of an operator. It is appended only if the step was undecided at the
very end of the history, so the broker accepts one of several concurrent decisions. The bucket with the tokens' hashes
lists the steps that wait; the log decides.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from hmac import compare_digest
from typing import TypeAlias

from msgspec import Struct

from penstock.actors.runs.loading import load, load_many, workflow_of
from penstock.broker import record_keys
from penstock.broker.store import Store
from penstock.config.process.crash_points import reached
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Conflict, Denied, NotFound, PenstockError, Unavailable
from penstock.engine.run.event_payloads import Decision
from penstock.engine.run.events import ApprovalGranted, ApprovalRejected
from penstock.engine.run.expansion import expanded
from penstock.engine.run.kinds.approval import approval_of, has_expired, token_hash
from penstock.engine.run.state import Run, RunStatus, StepState, StepStatus
from penstock.engine.times import rfc3339

TRIES_MAX = 100  # other events of the run may come between reading it and the decision

CHUNK = 250  # runs that are loaded together

INVALID = "the token is not valid for this step, or no longer"


class Waiting(Struct, frozen=True, omit_defaults=True):
    """A step that waits for its decision, with what its definition says about it."""

    run_id: str
    workflow_id: str
    step_id: str
    requested_at: str
    expires_at: str
    description: str | None = None
    subject: str | None = None
    metadata: dict[str, str] | None = None


class WaitingPage(Struct, frozen=True):
    """`next` is the cursor of what follows, None at the end."""

    waiting: list[Waiting]
    next: str | None


Check: TypeAlias = Callable[[Run, float], None]
"""Raises where a run, at this moment of the broker's, does not take the decision."""


async def decide(store: Store, run_id: str, step_id: str, token: str, decision: Decision, *, granted: bool) -> None:
    """Approve or reject by the token, once. Raises NotFound for an unknown run, Denied for a token that is not (or no
    longer) valid, Conflict for one that was used, Unavailable (outcome unknown)."""
    await _decide(
        store, run_id, step_id, decision, lambda run, now: _check_token(run, step_id, token, now), granted=granted
    )


async def decide_by_right(store: Store, run_id: str, step_id: str, decision: Decision, *, granted: bool) -> None:
    """Approve or reject as an operator, once, unless a decision came by a token.

    Raises NotFound for an unknown run or step, Conflict for a step that does not wait for an approval (any more),
    Unavailable (outcome unknown).
    """
    await _decide(store, run_id, step_id, decision, lambda run, now: _check_waits(run, step_id, now), granted=granted)


async def waiting(
    store: Store, workflow: str | None, limit: int, cursor: str | None, sees: Callable[[str], bool] = lambda _: True
) -> WaitingPage:
    """The steps that wait for a decision, of the oldest run first, at most `limit`, of workflows that the caller
    `sees`. Raises Unavailable."""
    found: list[Waiting] = []
    keys = [key for key in sorted(await store.approval_tokens.keys()) if cursor is None or key > cursor]
    for at in range(0, len(keys), CHUNK):
        chunk = keys[at : at + CHUNK]
        async for key, one in _waiting(store, chunk):
            if workflow in (None, one.workflow_id) and sees(one.workflow_id):
                found.append(one)
                if len(found) == limit:
                    return WaitingPage(found, key if key != keys[-1] else None)
    return WaitingPage(found, None)


async def _decide(store: Store, run_id: str, step_id: str, decision: Decision, check: Check, *, granted: bool) -> None:
    for _ in range(TRIES_MAX):
        loaded = await load(store, run_id)
        if loaded.run is None:
            raise NotFound(f"run {run_id} does not exist")
        check(loaded.run, await store.history.now())
        if await store.history.append_next(_event(loaded.run, step_id, decision, granted=granted), loaded.last_seq):
            reached("approval.decided")
            with suppress(PenstockError):  # a token that stays there decides nothing, and is left out of lists
                await store.approval_tokens.delete(record_keys.step_key(run_id, step_id))
            return
    raise Unavailable(f"run {run_id} has too many events at this moment, try again")


def _check_token(run: Run, step_id: str, token: str, now: float) -> None:
    step = run.steps.get(step_id)
    if step is None or step.token is None or not compare_digest(token_hash(token), step.token):
        raise Denied(INVALID)
    if _is_decided(step) or _is_kept(run, step_id):
        raise Conflict(f'the token was used already: step "{step_id}" is decided')
    if not _waits(run, step, now):
        raise Denied(INVALID)


def _check_waits(run: Run, step_id: str, now: float) -> None:
    step = run.steps.get(step_id)
    if step is None:
        raise NotFound(f"run {run.run_id} has no step {quoted(step_id)}")
    if step.token is not None and _is_decided(step):
        raise Conflict(f'step "{step_id}" of run {run.run_id} is decided already: it is {step.status}')
    if _is_kept(run, step_id):
        raise Conflict(f'step "{step_id}" of run {run.run_id} is decided already; it ends when the run is resumed')
    if not _waits(run, step, now):
        raise Conflict(f'step "{step_id}" of run {run.run_id} does not wait for an approval: it is {step.status}')


def _is_decided(step: StepState) -> bool:
    failed = step.status in (StepStatus.FAILED, StepStatus.RECOVERED)
    return step.status is StepStatus.COMPLETED or (failed and not has_expired(step))


def _is_kept(run: Run, step_id: str) -> bool:
    """Whether a decision came while the run was paused, and takes effect when it goes on."""
    return run.pause is not None and run.pause.decided(step_id)


def _waits(run: Run, step: StepState, now: float) -> bool:
    running = run.status is RunStatus.RUNNING and not run.failing and step.status is StepStatus.RUNNING
    return running and step.token is not None and step.due is not None and now < step.due


async def _waiting(store: Store, keys: list[str]) -> AsyncIterator[tuple[str, Waiting]]:
    """Yield the keys whose steps wait for a decision, in their order."""
    places = [key.partition(".")[::2] for key in keys]
    runs = {run.run_id: run for run in await load_many(store, list(dict.fromkeys(run_id for run_id, _ in places)))}
    now = await store.history.now()
    for key, (run_id, step_id) in zip(keys, places, strict=True):
        run = runs.get(run_id)
        step = run.steps.get(step_id) if run else None
        if run and step and _waits(run, step, now) and not _is_kept(run, step_id):
            yield key, await _described(store, run, step_id, step)


async def _described(store: Store, run: Run, step_id: str, step: StepState) -> Waiting:
    workflow = await workflow_of(store, run, ())
    plan = expanded(workflow, run).plan_of(step_id) if workflow else None
    asked = approval_of(plan) if plan else None
    known = (asked.description, asked.subject, asked.metadata) if asked else (None, None, None)
    assert step.due is not None
    return Waiting(run.run_id, run.workflow_id, step_id, step.started_at or "", rfc3339(step.due), *known)


def _event(run: Run, step_id: str, decision: Decision, *, granted: bool) -> ApprovalGranted | ApprovalRejected:
    kind = ApprovalGranted if granted else ApprovalRejected
    attempt = run.steps[step_id].attempts
    return kind(
        run_id=run.run_id, step_id=step_id, timestamp=rfc3339(time.time()), attempt_number=attempt, payload=decision
    )
