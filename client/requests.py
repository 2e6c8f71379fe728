"""The requests of the API as values: what is sent, and how the response is read. Nothing here is sent.

A function makes each of them. Client and AsyncClient have a method for every function, with its name, parameters and
docstring: what is written here is what their users read. Every method raises the errors of sending/errors.py; here they
are named without "Error" at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import httpx2
import msgspec
from msgspec import UNSET, Raw

from penstock.client.address import segment
from penstock.client.api_request import (
    ApiRequest,
    PagedRequest,
    get,
    label_texts,
    page_limit,
    post,
    post_once,
    truth,
    with_query,
)
from penstock.client.bodies import (
    BulkStart,
    OperatorDecision,
    RetryOptions,
    RunCancellation,
    RunStart,
    ToCancel,
    TokenDecision,
    ToPause,
    ToRetry,
)
from penstock.client.recovery.views import BulkPaused, BulkResumed, BulkRetried, PausedRun, RetriedRun
from penstock.client.responses import decode
from penstock.client.views import (
    ApprovalView,
    BulkCancelled,
    BulkStarted,
    CancelledRun,
    CheckpointView,
    DeadLetterView,
    DecidedApproval,
    Discarded,
    EventView,
    FiredRun,
    MapItemView,
    Replayed,
    RunStats,
    RunView,
    ScheduledRun,
    Sent,
    SentEvent,
    StartedRun,
    TaskQueueView,
    TrialView,
    TriggerView,
    Unscheduled,
    WorkerView,
)
from penstock.config.limits import DEAD_LETTERS_LISTED_MAX, RUNS_LISTED_DEFAULT


def start(
    workflow: str,
    input: bytes | None = None,  # noqa: A002
    *,
    run_at: str | None = None,
    version: str | None = None,
    idempotency_key: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> ApiRequest[StartedRun]:
    """Start a run, now or at an RFC 3339 time, of the latest definition or of a `version`; `input` is JSON, at most
    1 MiB. The run is found by its `labels`, and expressions read them.

    Raises NotFound for an unknown workflow, Invalid for an input that does not fit its schema. It is sent again after
    Unavailable; only the same `idempotency_key` makes a second call safe.
    """
    body = RunStart(
        workflow,
        UNSET if input is None else Raw(input),
        UNSET if run_at is None else run_at,
        UNSET if version is None else version,
        labels or UNSET,
    )
    return post_once("/runs", StartedRun, msgspec.json.encode(body), idempotency_key)


def bulk(
    workflow: str,
    inputs: Sequence[bytes],
    *,
    version: str | None = None,
    labels: Mapping[str, str] | None = None,
    run_labels: Sequence[Mapping[str, str] | None] | None = None,
    idempotency_key: str | None = None,
) -> ApiRequest[BulkStarted]:
    """Start one run per input (JSON), all or none, at most 1,000; the run ids stand in the order of `inputs`.

    `labels` are those of every run, `run_labels` those of each, in the same order.

    Raises NotFound for an unknown workflow, Invalid that names every input that does not fit. It is sent again after
    Unavailable; only the same `idempotency_key` makes a second call safe.
    """
    given = UNSET if version is None else version
    body = BulkStart(workflow, [Raw(one) for one in inputs], given, labels or UNSET, run_labels or UNSET)
    return post_once("/runs/bulk", BulkStarted, msgspec.json.encode(body), idempotency_key)


def get_run(run_id: str) -> ApiRequest[RunView]:
    """One run with its steps, as it is now. Raises NotFound."""
    return get(f"/runs/{segment(run_id)}", RunView)


def output(run_id: str, step_id: str) -> ApiRequest[bytes]:
    """A step's output, whatever its size, as JSON. Raises NotFound when it has none."""
    return ApiRequest("GET", f"/runs/{segment(run_id)}/steps/{segment(step_id)}/output", lambda got: got.content)


def step_input(run_id: str, step_id: str) -> ApiRequest[bytes]:
    """The input of a step's last execution, as JSON. Raises NotFound while it waits for other steps."""
    return ApiRequest("GET", f"/runs/{segment(run_id)}/steps/{segment(step_id)}/input", lambda got: got.content)


def checkpoint(run_id: str, step_id: str, *, payload_max: int | None = None) -> ApiRequest[CheckpointView]:
    """What the worker of a step has kept last; of more than `payload_max` bytes only its size. Raises NotFound without
    a checkpoint, and when the run has ended."""
    path = f"/runs/{segment(run_id)}/steps/{segment(step_id)}/checkpoint"
    return get(with_query(path, {"payload_max": None if payload_max is None else str(payload_max)}), CheckpointView)


def items(run_id: str, step_id: str, *, status: str | None = None) -> PagedRequest[MapItemView]:
    """The elements of a map, by number; pages are fetched as they are needed. Raises NotFound for no map."""
    path = f"/runs/{segment(run_id)}/steps/{segment(step_id)}/items"
    return PagedRequest(with_query(path, {"status": status}), MapItemView, None)


def runs(
    *,
    workflow: str | None = None,
    status: str | None = None,
    after: str | None = None,
    before: str | None = None,
    prefix: str | None = None,
    parent: str | None = None,
    trigger: str | None = None,
    labels: Mapping[str, str] | None = None,
    text: str | None = None,
    paused: bool | None = None,
    limit: int | None = None,
) -> PagedRequest[RunView]:
    """Runs, newest first, at most `limit` in all; pages are fetched as they are needed.

    `after` and `before` (RFC 3339) bound their creation, `prefix` is what the run ids begin with, 8 characters or more.
    `parent` is the run that has started them, `trigger` the trigger's name. A run must have all `labels`. `text` is
    what an id begins with or a label contains. `paused`: only runs that are paused, or (False) that are not.
    """
    query = {
        "workflow": workflow,
        "status": status,
        "after": after,
        "before": before,
        "prefix": prefix,
        "parent": parent,
        "trigger": trigger,
        "label": label_texts(labels),
        "q": text,
        "paused": truth(paused),
        "limit": page_limit(limit, RUNS_LISTED_DEFAULT),
    }
    return PagedRequest(with_query("/runs", query), RunView, limit)


def run_stats(
    *,
    bucket: str | None = None,
    workflow: str | None = None,
    status: str | None = None,
    after: str | None = None,
    before: str | None = None,
    prefix: str | None = None,
    parent: str | None = None,
    trigger: str | None = None,
    labels: Mapping[str, str] | None = None,
    text: str | None = None,
    paused: bool | None = None,
    by: str | None = None,
    durations: bool | None = None,
    within_ms: int | None = None,
) -> ApiRequest[RunStats]:
    """Numbers of runs by status and time of creation, in buckets of a width such as `1h`, or in one; the rest is as for
    `runs`. `by` is workflow or trigger: the numbers of each, too. `durations`: also how long the newest 1,000 completed
    runs took. `within_ms`: count the newest runs for so long, and say in `complete` and `since` how far that went.
    Raises Invalid for more than 2,000 buckets."""
    query = {
        "bucket": bucket,
        "by": by,
        "durations": truth(durations),
        "within_ms": None if within_ms is None else str(within_ms),
        "workflow": workflow,
        "status": status,
        "after": after,
        "before": before,
        "prefix": prefix,
        "parent": parent,
        "trigger": trigger,
        "label": label_texts(labels),
        "q": text,
        "paused": truth(paused),
    }
    return get(with_query("/runs/stats", query), RunStats)


def cancel(run_id: str, reason: str | None = None, *, compensate: bool = False) -> ApiRequest[CancelledRun]:
    """Cancel a run; its history keeps the reason. With `compensate` it undoes the steps that have completed first, and
    is `compensating` until then. Raises NotFound, Conflict when the run has ended, or undoes its steps already."""
    content = msgspec.json.encode(RunCancellation(reason, compensate)) if reason is not None or compensate else b""
    return post(f"/runs/{segment(run_id)}/cancel", CancelledRun, content)


def cancel_all(matching: ToCancel) -> ApiRequest[BulkCancelled]:
    """Cancel the runs that match, at most 1,000. Raises NotFound for an unknown workflow, Invalid when more match."""
    return post("/runs/cancel", BulkCancelled, msgspec.json.encode(matching))


def pause(run_id: str, *, children: bool = False) -> ApiRequest[PausedRun]:
    """Pause a run, unless it is paused: what runs finishes, and nothing new begins. With `children` the runs that its
    steps wait for, too. Raises NotFound, Conflict when the run has ended."""
    return post(f"/runs/{segment(run_id)}/pause", PausedRun, _scope(children))


def resume(run_id: str, *, children: bool = False) -> ApiRequest[PausedRun]:
    """Let a run go on, if it is paused; with `children` the runs that its steps wait for, too. Raises as `pause`."""
    return post(f"/runs/{segment(run_id)}/resume", PausedRun, _scope(children))


def pause_all(matching: ToPause) -> ApiRequest[BulkPaused]:
    """Pause the runs that match, at most 1,000. Raises NotFound for an unknown workflow, Invalid when more match."""
    return post("/runs/pause", BulkPaused, msgspec.json.encode(matching))


def resume_all(matching: ToPause) -> ApiRequest[BulkResumed]:
    """Let those go on that are paused, of the runs that match, at most 1,000. Raises as `pause_all`."""
    return post("/runs/resume", BulkResumed, msgspec.json.encode(matching))


def _scope(children: bool) -> bytes:
    return b'{"children":true}' if children else b""


def retry(run_id: str, mode: str = "replay", *, once: bool = False) -> ApiRequest[RetriedRun]:
    """Resume a failed run at the steps that failed (replay), or start a new one with its input (rerun). Raises
    NotFound, Conflict when it has not failed, or with `once` when it was rerun already."""
    return post(f"/runs/{segment(run_id)}/retry", RetriedRun, msgspec.json.encode(RetryOptions(mode, once)))


def retry_all(matching: ToRetry) -> ApiRequest[BulkRetried]:
    """Retry the failed runs that match, at most 1,000. Raises NotFound for an unknown workflow, Invalid when more
    match."""
    return post("/runs/retry", BulkRetried, msgspec.json.encode(matching))


def approvals(*, workflow: str | None = None) -> PagedRequest[ApprovalView]:
    """Steps that wait for a decision, those of the oldest run first; pages are fetched as they are needed."""
    return PagedRequest(with_query("/approvals", {"workflow": workflow}), ApprovalView)


def decide_by_right(
    run_id: str, step_id: str, action: str, *, comment: str | None = None, approved_by: str | None = None
) -> ApiRequest[DecidedApproval]:
    """Decide an approval as an operator; `action` is approve or reject.

    Raises NotFound, Conflict when the step does not wait for a decision.
    """
    content = msgspec.json.encode(OperatorDecision(action, comment, approved_by))
    return post(f"/approvals/{segment(run_id)}/{segment(step_id)}", DecidedApproval, content)


def decide(
    run_id: str, step_id: str, token: str, action: str, *, comment: str | None = None, approved_by: str | None = None
) -> ApiRequest[DecidedApproval]:
    """Decide an approval by its one-time token; `action` is approve or reject.

    Raises Denied for a token that is not valid (any more), Conflict for one that was used.
    """
    url = with_query(f"/runs/{segment(run_id)}/approval/{segment(step_id)}", {"action": action, "token": token})
    return post(url, DecidedApproval, msgspec.json.encode(TokenDecision(comment, approved_by)))


def scheduled(run_id: str) -> ApiRequest[ScheduledRun]:
    """A run that waits for its time. Raises NotFound once it has started or was cancelled."""
    return get(f"/runs/{segment(run_id)}/scheduled", ScheduledRun)


def unschedule(run_id: str) -> ApiRequest[Unscheduled]:
    """Cancel a scheduled run before it starts. Raises Invalid when it has started, or is none."""
    return ApiRequest("DELETE", f"/runs/{segment(run_id)}/scheduled", partial(decode, kind=Unscheduled))


def signal(run_id: str, name: str, payload: bytes = b"") -> ApiRequest[Sent]:
    """Send a signal to a run, with any bytes, at most 1 MiB. Raises NotFound, TooLarge."""
    return post(f"/runs/{segment(run_id)}/signal/{segment(name)}", Sent, payload)


def dead_letters(
    *, run_id: str | None = None, task: str | None = None, limit: int | None = None
) -> PagedRequest[DeadLetterView]:
    """Dead letters, newest first, at most `limit` in all; pages are fetched as they are needed."""
    query = {"run": run_id, "task": task, "limit": page_limit(limit, DEAD_LETTERS_LISTED_MAX)}
    return PagedRequest(with_query("/dead-letters", query), DeadLetterView, limit)


def dead_letter(seq: int, *, payload_max: int | None = None) -> ApiRequest[DeadLetterView]:
    """One dead letter with its payload; of one over `payload_max` bytes only its size. Raises NotFound."""
    return get(
        with_query(f"/dead-letters/{seq}", {"payload_max": None if payload_max is None else str(payload_max)}),
        DeadLetterView,
    )


def replay_dead_letter(seq: int) -> ApiRequest[Replayed]:
    """Resume the failed run of a dead letter. Raises NotFound, Conflict when that is not possible."""
    return post(f"/dead-letters/{seq}/replay", Replayed)


def discard_dead_letter(seq: int) -> ApiRequest[Discarded]:
    """Remove a dead letter, for good. Raises NotFound."""
    return ApiRequest("DELETE", f"/dead-letters/{seq}", partial(decode, kind=Discarded))


def events(run_id: str, after: int = 0) -> PagedRequest[EventView]:
    """The history of a run after stream sequence `after`, as far as it goes now. Raises NotFound."""
    return PagedRequest(httpx2.URL(f"/runs/{segment(run_id)}/events?after={after}"), EventView)


def put_trigger(document: bytes) -> ApiRequest[TriggerView]:
    """Make a trigger, or replace the one of its name; `document` is its JSON. Raises Invalid with every problem."""
    return post("/triggers", TriggerView, document)


def set_trigger(trigger: TriggerView) -> ApiRequest[TriggerView]:
    """Replace a trigger by a changed view of it; a secret stays as it is. Raises Invalid with every problem."""
    read = partial(decode, kind=TriggerView)
    return ApiRequest("PUT", f"/triggers/{segment(trigger.name)}", read, msgspec.json.encode(trigger))


def triggers() -> ApiRequest[list[TriggerView]]:
    """All triggers, by name."""
    return get("/triggers", list[TriggerView])


def trigger(name: str) -> ApiRequest[TriggerView]:
    """One trigger. Raises NotFound."""
    return get(f"/triggers/{segment(name)}", TriggerView)


def delete_trigger(name: str) -> ApiRequest[None]:
    """Remove a trigger; trigger events that have not started a run yet never will. Raises NotFound."""
    return ApiRequest("DELETE", f"/triggers/{segment(name)}", _nothing)


def fire_trigger(name: str, payload: bytes | None = None) -> ApiRequest[FiredRun]:
    """Start a run of a trigger manually; `payload` is JSON, its input. Raises NotFound, Invalid."""
    return post(f"/triggers/{segment(name)}/fire", FiredRun, payload or b"")


def test_trigger(name: str, payload: bytes | None = None) -> ApiRequest[TrialView]:  # noqa: PT028 - is no test
    """What the trigger would do with this JSON as its event; nothing is started. Raises NotFound."""
    read = partial(decode, kind=TrialView)
    return ApiRequest("POST", f"/triggers/{segment(name)}/test", read, payload or b"", changes_nothing=True)


def send_event(name: str, body: bytes = b"null", *, idempotency_key: str | None = None) -> ApiRequest[SentEvent]:
    """Send an event, for event triggers; `body` is JSON, at most 1 MiB.

    Raises Invalid for a bad name, TooLarge. Only the same `idempotency_key` makes a second call safe.
    """
    return post_once(f"/events/{segment(name)}", SentEvent, body, idempotency_key)


def tasks() -> ApiRequest[list[TaskQueueView]]:
    """The task queues, those with most tasks first."""
    return get("/tasks", list[TaskQueueView])


def workers() -> ApiRequest[list[WorkerView]]:
    """The workers that are registered now. Workers of any make write there: registrations that break the protocol are
    left out."""
    return ApiRequest("GET", "/workers", _workers)


def health() -> ApiRequest[None]:
    """Return when the service is alive and its broker connected. Raises Unavailable otherwise."""
    return ApiRequest("GET", "/health", _nothing)


def ready() -> ApiRequest[None]:
    """Return when every part of the service has started. Raises Unavailable otherwise."""
    return ApiRequest("GET", "/ready", _nothing)


def _nothing(response: httpx2.Response) -> None:
    """A response without a result except its status."""


def _workers(response: httpx2.Response) -> list[WorkerView]:
    found = (_worker(body) for body in decode(response, list[Raw]))
    return [worker for worker in found if worker is not None]


def _worker(body: Raw) -> WorkerView | None:
    try:
        return msgspec.json.decode(body, type=WorkerView)
    except msgspec.ValidationError:
        return None
