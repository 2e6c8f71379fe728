"""A client of the HTTP API, for the command line and for scripts: blocking, typed, one method per thing to ask.

Errors are those that connection.py makes of answers and of connections that fail.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import islice
from types import TracebackType
from typing import Self

import httpx2
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from penstock.client.connection import Connection, LostError, decode, segment
from penstock.client.views import (
    ApprovalView,
    CancelledRun,
    CancelledRuns,
    DecidedApproval,
    DiscardedLetter,
    EventView,
    LetterView,
    Registered,
    ReplayedLetter,
    RetriedRun,
    RetriedRuns,
    RunView,
    ScheduledRun,
    SentSignal,
    StartedRun,
    StartedRuns,
    Status,
    TaskQueueView,
    TrialView,
    TriggerView,
    WorkerView,
)
from penstock.config.limits import DEAD_LETTERS_LISTED_MAX, RUNS_LISTED_DEFAULT
from penstock.engine import errors
from penstock.engine.definition.definitions import WorkflowDef, from_json

TIMEOUT_S = 30.0
RECONNECT_S = 0.2
RECONNECT_S_MAX = 5.0
RECONNECTS_MAX = 10  # in a row, without one that succeeds


class _Start(Struct, frozen=True):
    workflow: str
    input: Raw | UnsetType = UNSET
    run_at: str | UnsetType = UNSET


class _Bulk(Struct, frozen=True):
    workflow_id: str
    inputs: Sequence[Raw]


class _Cancel(Struct, frozen=True):
    reason: str


class _Opinion(Struct, frozen=True, omit_defaults=True):
    comment: str | None = None
    approved_by: str | None = None


class _Choice(Struct, frozen=True, omit_defaults=True):
    action: str
    comment: str | None = None
    approved_by: str | None = None


class _Retry(Struct, frozen=True, omit_defaults=True):
    mode: str
    once: bool = False


class Matching(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Which runs of a workflow: `after` and `before` (RFC 3339) bound their creation. Without `limit`, at most 1,000
    may match; with it, the newest so many beyond `cursor` are taken, which is `next` of the answer before."""

    workflow_id: str
    after: str | None = None
    before: str | None = None
    dry_run: bool = False
    limit: int | None = None
    cursor: str | None = None


class ToCancel(Matching, frozen=True, omit_defaults=True, kw_only=True):
    """`status` is running, pending or all."""

    status: str | None = None


class ToRetry(Matching, frozen=True, omit_defaults=True, kw_only=True):
    """`mode` is rerun or replay; with `once`, what was rerun already is skipped."""

    mode: str
    once: bool = False


class Client:
    """Owned by its caller, a context manager; one connection pool for its lifetime. Not for use by several threads at
    once."""

    def __init__(self, base_url: str, token: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """Raises Invalid when `base_url` is no http:// or https:// address."""
        self._service = Connection(base_url, token, timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._service.close()

    def register(self, definition: bytes) -> Registered:
        """Register or replace a workflow; `definition` is its JSON."""
        return decode(self._service.send("POST", "/workflows", content=definition), Registered)

    def workflows(self) -> list[WorkflowDef]:
        return [from_json(bytes(body)) for body in decode(self._service.send("GET", "/workflows"), list[Raw])]

    def workflow(self, name: str) -> WorkflowDef:
        return decode(self._service.send("GET", f"/workflows/{segment(name)}"), WorkflowDef)

    def start(
        self,
        workflow: str,
        input: bytes | None = None,  # noqa: A002
        *,
        run_at: str | None = None,
        idempotency_key: str | None = None,
    ) -> StartedRun:
        """Start a run, now or at an RFC 3339 time; `input` is JSON. After Unavailable, only the same `idempotency_key`
        makes a second try safe."""
        body = _Start(workflow, UNSET if input is None else Raw(input), UNSET if run_at is None else run_at)
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key is not None else {}
        return decode(
            self._service.send("POST", "/runs", content=msgspec.json.encode(body), headers=headers), StartedRun
        )

    def bulk(self, workflow: str, inputs: Sequence[bytes]) -> StartedRuns:
        """Start one run per input, all or none, at most 1000; the run ids stand in the order of `inputs`."""
        body = _Bulk(workflow, [Raw(input) for input in inputs])  # noqa: A001
        return decode(self._service.send("POST", "/runs/bulk", content=msgspec.json.encode(body)), StartedRuns)

    def run(self, run_id: str) -> RunView:
        return decode(self._service.send("GET", f"/runs/{segment(run_id)}"), RunView)

    def output(self, run_id: str, step_id: str) -> bytes:
        """A step's output, whatever its size, as JSON. Raises NotFound when it has none."""
        return self._service.send("GET", f"/runs/{segment(run_id)}/steps/{segment(step_id)}/output").content

    def runs(
        self,
        *,
        workflow: str | None = None,
        status: str | None = None,
        after: str | None = None,
        before: str | None = None,
        prefix: str | None = None,
        limit: int | None = None,
    ) -> Iterator[RunView]:
        """Newest first, at most `limit` in all; pages are fetched as they are needed. `after` and `before` are RFC
        3339, `prefix` is what the run ids begin with, 8 characters or more."""
        page = min(limit or RUNS_LISTED_DEFAULT, RUNS_LISTED_DEFAULT)
        query = {
            "workflow": workflow,
            "status": status,
            "after": after,
            "before": before,
            "prefix": prefix,
            "limit": str(page),
        }
        url = httpx2.URL("/runs", params={name: value for name, value in query.items() if value is not None})
        return islice(self._service.pages(url, RunView), limit)

    def cancel(self, run_id: str, reason: str | None = None) -> CancelledRun:
        body = b"" if reason is None else msgspec.json.encode(_Cancel(reason))
        return decode(self._service.send("POST", f"/runs/{segment(run_id)}/cancel", content=body), CancelledRun)

    def cancel_all(self, matching: ToCancel) -> CancelledRuns:
        """Cancel the runs that match."""
        return decode(self._service.send("POST", "/runs/cancel", content=msgspec.json.encode(matching)), CancelledRuns)

    def retry(self, run_id: str, mode: str = "replay", *, once: bool = False) -> RetriedRun:
        """Have a failed run go on at what failed (replay), or start a new one with its input (rerun).

        Raises Conflict when it has not failed, or with `once` when it was rerun already.
        """
        content = msgspec.json.encode(_Retry(mode, once))
        return decode(self._service.send("POST", f"/runs/{segment(run_id)}/retry", content=content), RetriedRun)

    def retry_all(self, matching: ToRetry) -> RetriedRuns:
        """Retry the failed runs that match."""
        return decode(self._service.send("POST", "/runs/retry", content=msgspec.json.encode(matching)), RetriedRuns)

    def approvals(self, *, workflow: str | None = None) -> Iterator[ApprovalView]:
        """Steps that wait for a decision, of the oldest run first; pages are fetched as they are needed."""
        url = httpx2.URL("/approvals", params={} if workflow is None else {"workflow": workflow})
        return self._service.pages(url, ApprovalView)

    def decide_by_right(
        self, run_id: str, step_id: str, action: str, *, comment: str | None = None, approved_by: str | None = None
    ) -> DecidedApproval:
        """Decide an approval as an operator; `action` is approve or reject. Raises Conflict when the step does not wait
        for it."""
        content = msgspec.json.encode(_Choice(action, comment, approved_by))
        return decode(
            self._service.send("POST", f"/approvals/{segment(run_id)}/{segment(step_id)}", content=content),
            DecidedApproval,
        )

    def tasks(self) -> list[TaskQueueView]:
        """The task queues, those with most tasks first."""
        return decode(self._service.send("GET", "/tasks"), list[TaskQueueView])

    def decide(
        self,
        run_id: str,
        step_id: str,
        token: str,
        action: str,
        *,
        comment: str | None = None,
        approved_by: str | None = None,
    ) -> DecidedApproval:
        """Decide an approval by its one-time token; `action` is approve or reject. Raises Denied, Conflict for a used
        token."""
        url = httpx2.URL(
            f"/runs/{segment(run_id)}/approval/{segment(step_id)}", params={"action": action, "token": token}
        )
        body = _Opinion(comment, approved_by)
        return decode(self._service.send("POST", url, content=msgspec.json.encode(body)), DecidedApproval)

    def scheduled(self, run_id: str) -> ScheduledRun:
        return decode(self._service.send("GET", f"/runs/{segment(run_id)}/scheduled"), ScheduledRun)

    def unschedule(self, run_id: str) -> Status:
        """Cancel a scheduled run before it starts; Invalid when it has, or is none."""
        return decode(self._service.send("DELETE", f"/runs/{segment(run_id)}/scheduled"), Status)

    def signal(self, run_id: str, name: str, payload: bytes = b"") -> SentSignal:
        """Send a signal, with any bytes."""
        return decode(
            self._service.send("POST", f"/runs/{segment(run_id)}/signal/{segment(name)}", content=payload), SentSignal
        )

    def dead_letters(
        self, *, run_id: str | None = None, task: str | None = None, limit: int | None = None
    ) -> Iterator[LetterView]:
        """Newest first, at most `limit` in all; pages are fetched as they are needed."""
        page = min(limit or DEAD_LETTERS_LISTED_MAX, DEAD_LETTERS_LISTED_MAX)
        query = {"run": run_id, "task": task, "limit": str(page)}
        url = httpx2.URL("/dead-letters", params={name: value for name, value in query.items() if value is not None})
        return islice(self._service.pages(url, LetterView), limit)

    def dead_letter(self, seq: int) -> LetterView:
        return decode(self._service.send("GET", f"/dead-letters/{seq}"), LetterView)

    def replay_dead_letter(self, seq: int) -> ReplayedLetter:
        """Have the letter's failed run go on at what failed; Conflict when it cannot."""
        return decode(self._service.send("POST", f"/dead-letters/{seq}/replay"), ReplayedLetter)

    def discard_dead_letter(self, seq: int) -> DiscardedLetter:
        return decode(self._service.send("DELETE", f"/dead-letters/{seq}"), DiscardedLetter)

    def events(self, run_id: str, after: int = 0) -> list[EventView]:
        """The history after stream sequence `after`, as far as it goes now."""
        return list(self._service.pages(httpx2.URL(f"/runs/{segment(run_id)}/events?after={after}"), EventView))

    def follow(self, run_id: str, after: int = 0) -> Iterator[EventView]:
        """The history after stream sequence `after`, live, until the run ends. A lost connection is resumed where it
        broke.

        Raises Unavailable when the first connection fails, or RECONNECTS_MAX in a row do later.
        """
        failures = RECONNECTS_MAX  # the first connection has no second try
        while True:
            try:
                with self._service.stream(run_id, after) as stream:
                    failures = 0
                    for event in stream:
                        after = event.seq
                        yield event
                if self.run(run_id).ended:
                    yield from self.events(run_id, after)
                    return
            except LostError:
                pass
            except errors.Unavailable:
                failures += 1
                if failures > RECONNECTS_MAX:
                    raise
            time.sleep(min(RECONNECT_S * 2**failures, RECONNECT_S_MAX))

    def put_trigger(self, document: bytes) -> TriggerView:
        """Make a trigger, or replace the one of its name; `document` is its JSON."""
        return decode(self._service.send("POST", "/triggers", content=document), TriggerView)

    def set_trigger(self, trigger: TriggerView) -> TriggerView:
        """Replace a trigger by a changed view of it; a secret stays as it is."""
        return decode(
            self._service.send("PUT", f"/triggers/{segment(trigger.name)}", content=msgspec.json.encode(trigger)),
            TriggerView,
        )

    def triggers(self) -> list[TriggerView]:
        return decode(self._service.send("GET", "/triggers"), list[TriggerView])

    def trigger(self, name: str) -> TriggerView:
        return decode(self._service.send("GET", f"/triggers/{segment(name)}"), TriggerView)

    def delete_trigger(self, name: str) -> None:
        self._service.send("DELETE", f"/triggers/{segment(name)}")

    def fire_trigger(self, name: str, payload: bytes | None = None) -> StartedRun:
        """Start a run of a trigger by hand; `payload` is JSON."""
        return decode(self._service.send("POST", f"/triggers/{segment(name)}/fire", content=payload or b""), StartedRun)

    def test_trigger(self, name: str, payload: bytes | None = None) -> TrialView:
        """What the trigger would do if this JSON came to it; nothing is started."""
        return decode(self._service.send("POST", f"/triggers/{segment(name)}/test", content=payload or b""), TrialView)

    def workers(self) -> list[WorkerView]:
        """Who is registered now. Workers of any make write there: registrations that break the protocol are left
        out."""
        found = (_worker(body) for body in decode(self._service.send("GET", "/workers"), list[Raw]))
        return [worker for worker in found if worker is not None]

    def health(self) -> None:
        """Returns when the service is alive and its broker connected. Raises Unavailable otherwise."""
        self._service.send("GET", "/health")

    def ready(self) -> None:
        """Returns when every part of the service has started. Raises Unavailable otherwise."""
        self._service.send("GET", "/ready")


def _worker(body: Raw) -> WorkerView | None:
    try:
        return msgspec.json.decode(body, type=WorkerView)
    except msgspec.ValidationError:
        return None
