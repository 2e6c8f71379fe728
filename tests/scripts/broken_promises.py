"""What a storm might leave behind: small histories, each of which breaks one promise, and what they are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chaos_parts.evidence import Evidence, History, ShownRun, ShownStep
from chaos_parts.executions import Execution, digest
from chaos_parts.ledger import Batch, Ledger, Start, Ticks, Verdict
from chaos_parts.step_account import Seen
from chaos_parts.workflows import BRIEF, CHAIN, CONSENT, CRON, DEFINITIONS, DOOMED, SIGNALLED, TIMED

from penstock.engine.run.compiling import compile_workflow
from penstock.engine.run.workflow import Workflow
from penstock.engine.validation import parse

RUN, OTHER = "a" * 32, "b" * 32
BEGIN = 1_000_000.0
WORKFLOWS: Mapping[str, Workflow] = {one["name"]: compile_workflow(parse(one), "d" * 32) for one in DEFINITIONS}


def sequence(*events: Seen) -> list[Seen]:
    """These events one after the other, a second apart unless they say when."""
    return [
        Seen(seq, one.at or BEGIN + seq, one.type, one.step_id, one.attempt, one.iteration, one.payload)
        for seq, one in enumerate(events, 1)
    ]


def event(
    kind: str,
    step_id: str | None = None,
    payload: Any = None,
    attempt: int | None = None,
    iteration: int | None = None,
    at: float = 0,
) -> Seen:
    return Seen(0, at, kind, step_id, attempt or (1 if step_id else None), iteration, payload)


def started(**value: Any) -> Seen:
    return event("workflow.started", payload={"input": value})


def ticked(at: str) -> Seen:
    return event("workflow.started", payload={"trigger": {"name": CRON, "kind": "cron", "at": at}})


def step(step_id: str, output: Any = None, attempt: int = 1) -> list[Seen]:
    """It begins, and gives this back."""
    return [event("step.started", step_id, attempt=attempt), event("step.completed", step_id, output, attempt)]


def timer(name: str, attempt: int, at: float) -> Seen:
    return event("timer.fired", payload={"timer": name, "attempt": attempt}, at=at)


COMPLETED = event("workflow.completed", payload={})
CANCELLED = event("workflow.cancelled")
FAILED = event("workflow.failed", payload={"error": 'step "doom" failed: chaos: doomed'})
DOOM = event("step.failed", "doom", {"error": "chaos: doomed", "failure_type": "non_retriable"})
BRIEFLY = (started(key="k"), *step("a", 7), COMPLETED)


def evidence(workflow: str, *events: Seen, ledger: Ledger | None = None, **more: Any) -> Evidence:
    """What one run leaves behind that a keyed start has begun, with snapshot and answers that agree with its
    history."""
    history = History(WORKFLOWS[workflow], sequence(*events))
    given = ledger or Ledger(starts={"k": Start(workflow, [RUN])})
    around = {"snapshots": {RUN: b"state"}, "folds": {RUN: b"state"}, "shown": {"snapshot": {RUN: history.shown}}}
    return Evidence(given, {RUN: history}, **{**around, **more})


def keyed(workflow: str = BRIEF, **more: Any) -> Ledger:
    return Ledger(starts={"k": Start(workflow, [RUN])}, **more)


def lost_start() -> Evidence:
    return Evidence(keyed(), {})


def lost_bulk_start() -> Evidence:
    return Evidence(Ledger(batches={"b": Batch(1, [RUN])}), {})


def two_answers_to_a_key() -> Evidence:
    return evidence(BRIEF, *BRIEFLY, ledger=Ledger(starts={"k": Start(BRIEF, [RUN, OTHER])}))


def two_runs_of_a_key() -> Evidence:
    history = History(WORKFLOWS[BRIEF], sequence(*BRIEFLY))
    return Evidence(keyed(), {RUN: history, OTHER: history})


def half_a_batch() -> Evidence:
    return evidence(BRIEF, started(batch="b"), *step("a"), COMPLETED, ledger=Ledger(batches={"b": Batch(2)}))


def batch_with_other_ids() -> Evidence:
    return evidence(BRIEF, started(batch="b"), *step("a"), COMPLETED, ledger=Ledger(batches={"b": Batch(1, [OTHER])}))


def lost_webhook() -> Evidence:
    return Evidence(Ledger(deliveries={"d": True}), {})


def webhook_twice() -> Evidence:
    history = History(WORKFLOWS[BRIEF], sequence(started(delivery="d"), *step("a"), COMPLETED))
    return Evidence(Ledger(deliveries={"d": True}), {RUN: history, OTHER: history})


def lost_event() -> Evidence:
    return Evidence(Ledger(events={"e": [7]}), {})


def event_twice() -> Evidence:
    history = History(WORKFLOWS[BRIEF], sequence(started(event="e"), *step("a"), COMPLETED))
    return Evidence(Ledger(events={"e": [7]}), {RUN: history, OTHER: history})


def event_with_two_sequences() -> Evidence:
    history = History(WORKFLOWS[BRIEF], sequence(started(event="e"), *step("a"), COMPLETED))
    return Evidence(Ledger(events={"e": [7, 8]}), {RUN: history})


def missed_tick() -> Evidence:
    second = int(BEGIN)
    return evidence(
        BRIEF, ticked("1970-01-12T13:46:40Z"), *step("a"), COMPLETED, ledger=Ledger(ticks=Ticks(second, second + 1))
    )


def tick_twice() -> Evidence:
    history = History(WORKFLOWS[BRIEF], sequence(ticked("1970-01-12T13:46:40Z"), *step("a"), COMPLETED))
    return Evidence(Ledger(ticks=Ticks(int(BEGIN), int(BEGIN))), {RUN: history, OTHER: history})


def too_early() -> Evidence:
    ledger = Ledger(starts={"k": Start(BRIEF, [RUN], run_at=BEGIN + 60)})
    return evidence(BRIEF, event("workflow.scheduled", payload={"input": {"key": "k"}}), *BRIEFLY, ledger=ledger)


def unscheduled_and_started() -> Evidence:
    return evidence(
        BRIEF, event("workflow.scheduled", payload={"input": {"key": "k"}}), *BRIEFLY, ledger=keyed(unscheduled={RUN})
    )


def nobodys_run() -> Evidence:
    return evidence(BRIEF, started(key="never asked"), *step("a"), COMPLETED)


def lost_signal() -> Evidence:
    return evidence(
        SIGNALLED,
        started(key="k"),
        *step("wait", "other"),
        *step("after"),
        COMPLETED,
        ledger=keyed(signals={RUN: "sent"}),
    )


CONSENTED = (
    started(key="k"),
    *step("a"),
    event("approval.requested", "consent"),
    event("approval.granted", "consent", {}),
    *step("after"),
)


def two_deciders() -> Evidence:
    verdicts = [Verdict("approve", 200, False), Verdict("approve", 200, False)]
    return evidence(CONSENT, *CONSENTED, COMPLETED, ledger=keyed(verdicts={RUN: verdicts}))


def decided_otherwise() -> Evidence:
    return evidence(CONSENT, *CONSENTED, COMPLETED, ledger=keyed(verdicts={RUN: [Verdict("reject", 200, False)]}))


def nobody_decided() -> Evidence:
    return evidence(CONSENT, *CONSENTED, COMPLETED, ledger=keyed(verdicts={RUN: [Verdict("approve", 409, False)]}))


def cancelled_and_completed() -> Evidence:
    return evidence(BRIEF, *BRIEFLY, CANCELLED, ledger=keyed(cancelled={RUN}))


def never_replayed() -> Evidence:
    return evidence(DOOMED, *doomed(), ledger=keyed(replayed={RUN}), dead_letters=frozenset({(RUN, "doom")}))


def odd_answer() -> Evidence:
    return evidence(BRIEF, *BRIEFLY, ledger=keyed(odd=[(RUN, "a read was answered 404")]))


def executed(step_id: str, value: Any, attempt: int = 1, at: float = BEGIN) -> Execution:
    return Execution(RUN, step_id, attempt, 0, digest(value), at)


def other_input() -> Evidence:
    """Of two results of `a` the first counts, and `b` was given the second."""
    late = event("step.completed", "a", "second")
    events = (started(key="k"), *step("a", "first"), late, *step("b"), *step("c"), COMPLETED)
    return evidence(CHAIN, *events, executions=[executed("b", "second")])


def never_ordered() -> Evidence:
    return evidence(BRIEF, *BRIEFLY, executions=[executed("a", {"key": "k"}, attempt=2)])


def still_running() -> Evidence:
    return evidence(BRIEF, started(key="k"), event("step.started", "a"))


def two_starts() -> Evidence:
    return evidence(BRIEF, started(key="k"), *BRIEFLY)


def completed_too_soon() -> Evidence:
    return evidence(CHAIN, started(key="k"), *step("a"), COMPLETED, *step("b"), *step("c"), COMPLETED)


def unknown_step() -> Evidence:
    return evidence(BRIEF, started(key="k"), event("step.completed", "zzz"), *step("a"), COMPLETED)


def unreadable() -> Evidence:
    return evidence(BRIEF, *BRIEFLY, malformed=["17: no event"])


def out_of_order() -> Evidence:
    return evidence(CHAIN, started(key="k"), event("step.started", "b"), *step("a"), *step("b"), *step("c"), COMPLETED)


def too_many_attempts() -> Evidence:
    """Twelve retries are all that its policy allows."""
    failures = [one for attempt in range(1, 14) for one in (timer("retry.a", attempt, 0), failure(attempt))]
    return evidence(
        BRIEF, started(key="k"), *failures, *step("a", attempt=14), FAILED, dead_letters=frozenset({(RUN, "a")})
    )


def before_its_retry() -> Evidence:
    """Its second attempt begins while it still has to wait."""
    return evidence(
        BRIEF,
        started(key="k"),
        failure(1),
        *step("a", attempt=2),
        timer("retry.a", 2, 0),
        *step("a", attempt=2),
        COMPLETED,
    )


def failure(attempt: int) -> Seen:
    return event("step.failed", "a", {"error": "chaos: failed"}, attempt)


def early_timer() -> Evidence:
    events = (
        started(key="k"),
        event("step.started", "slow"),
        timer("timeout.slow", 1, BEGIN + 2.5),
        *step("slow"),
        *step("after"),
        COMPLETED,
    )
    return evidence(TIMED, *events)


def failed_for_no_reason() -> Evidence:
    failed = event("workflow.failed", payload={"error": "internal error"})
    return evidence(
        BRIEF,
        started(key="k"),
        event("step.failed", "a", {"failure_type": "non_retriable"}),
        failed,
        dead_letters=frozenset({(RUN, "a")}),
    )


def doomed() -> tuple[Seen, ...]:
    return (started(key="k"), *step("a"), event("step.started", "doom"), DOOM, FAILED)


def no_dead_letter() -> Evidence:
    return evidence(DOOMED, *doomed())


def other_snapshot() -> Evidence:
    return evidence(BRIEF, *BRIEFLY, snapshots={RUN: b"another state"})


def no_snapshot() -> Evidence:
    return evidence(BRIEF, *BRIEFLY, snapshots={})


def told_otherwise() -> Evidence:
    """As if the second of two results were shown."""
    shown = ShownRun("completed", {"a": ShownStep("completed", 1, output=digest("second"))})
    return evidence(BRIEF, *BRIEFLY, shown={"GET /runs/{id}": {RUN: shown}})


def changed_after_its_end() -> Evidence:
    shown = ShownRun("cancelled", {"a": ShownStep("completed", 1, output=digest(7))})
    return evidence(BRIEF, *BRIEFLY, CANCELLED, shown={"GET /runs/{id}": {RUN: shown}})


def missing_in_the_list() -> Evidence:
    return evidence(BRIEF, *BRIEFLY, shown={"GET /runs": {}})


def ghost_in_the_list() -> Evidence:
    found = evidence(BRIEF, *BRIEFLY)
    return evidence(
        BRIEF, *BRIEFLY, shown={"GET /runs": {**found.shown["snapshot"], OTHER: found.histories[RUN].shown}}
    )


def task_left() -> Evidence:
    return evidence(BRIEF, *BRIEFLY, tasks=[f"task.chaos.work.{RUN}"])


def bug_logged() -> Evidence:
    return evidence(BRIEF, *BRIEFLY, logged=['{"event":"advance_failed"}'])


BROKEN: Mapping[Callable[[], Evidence], str] = {
    lost_start: "acknowledged start",
    lost_bulk_start: "acknowledged start",
    two_answers_to_a_key: "one run a key",
    two_runs_of_a_key: "one run a key",
    half_a_batch: "bulk all or none",
    batch_with_other_ids: "bulk all or none",
    lost_webhook: "one run a webhook",
    webhook_twice: "one run a webhook",
    lost_event: "one run an event",
    event_twice: "one run an event",
    event_with_two_sequences: "one run an event",
    missed_tick: "one run a tick",
    tick_twice: "one run a tick",
    too_early: "scheduled start",
    unscheduled_and_started: "unscheduled",
    nobodys_run: "asked for",
    lost_signal: "signal",
    two_deciders: "one decision a token",
    decided_otherwise: "one decision a token",
    nobody_decided: "one decision a token",
    cancelled_and_completed: "cancelled",
    never_replayed: "replayed",
    odd_answer: "answer",
    other_input: "executions",
    never_ordered: "executions",
    still_running: "every run ends",
    two_starts: "impossible event",
    completed_too_soon: "impossible event",
    unknown_step: "impossible event",
    unreadable: "impossible event",
    out_of_order: "dependencies first",
    too_many_attempts: "impossible event",
    before_its_retry: "impossible event",
    early_timer: "timers in time",
    failed_for_no_reason: "failure with a reason",
    no_dead_letter: "dead letters",
    other_snapshot: "snapshot is the fold",
    no_snapshot: "snapshot is the fold",
    told_otherwise: "shown the same",
    changed_after_its_end: "shown the same",
    missing_in_the_list: "shown the same",
    ghost_in_the_list: "shown the same",
    task_left: "nothing left",
    bug_logged: "log",
}
