"""What was answered with success must be so: each rule holds the ledger against the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime

from .evidence import Evidence, History, Violation
from .executions import digest
from .workflows import CRON, HOOK, SENT

EARLY_S = 0.005


def acknowledged_starts(evidence: Evidence) -> Iterator[Violation]:
    """Every run that was promised is in the log, once."""
    for run_id, how in evidence.ledger.acknowledged.items():
        history = evidence.histories.get(run_id)
        if history is None or not (history.count("workflow.started") or history.count("workflow.scheduled")):
            yield Violation(
                "acknowledged start", f"the {how} start was acknowledged, and the log has no run of it", run_id
            )


def one_run_a_key(evidence: Evidence) -> Iterator[Violation]:
    """Every answer to a key names the same run, and no other run has its input."""
    runs = _by_input(evidence, "key")
    for key, start in evidence.ledger.starts.items():
        if len(set(start.answers)) > 1:
            yield Violation(
                "one run a key",
                f"the key {key} was answered with several runs: {sorted(set(start.answers))}",
                start.answers[0],
            )
        if len(runs[key]) > 1:
            yield Violation("one run a key", f"the key {key} has started several runs: {runs[key]}", runs[key][0])


def bulk_all_or_none(evidence: Evidence) -> Iterator[Violation]:
    runs = _by_input(evidence, "batch")
    for name, batch in evidence.ledger.batches.items():
        found = len(runs[name])
        if found not in (0, batch.size):
            yield Violation("bulk all or none", f"of the {batch.size} runs of {name} there are {found}", runs[name][0])
        if batch.run_ids is not None and sorted(batch.run_ids) != sorted(runs[name]):
            yield Violation("bulk all or none", f"{name} was acknowledged with other runs than it has started")


def one_run_a_delivery(evidence: Evidence) -> Iterator[Violation]:
    """An accepted webhook starts one run, however often it was sent."""
    runs = _by_input(evidence, "delivery")
    for name, accepted in evidence.ledger.deliveries.items():
        found = len(runs[name])
        if found > 1 or (accepted and found == 0):
            yield Violation(
                "one run a webhook", f"the webhook {name} was accepted: {accepted}, and has started {found} runs"
            )


def one_run_an_event(evidence: Evidence) -> Iterator[Violation]:
    """An event that was sent with a key is one event, however often it was sent, and starts one run."""
    runs = _by_input(evidence, "event")
    for name, seqs in evidence.ledger.events.items():
        found = len(runs[name])
        if len(set(seqs)) > 1:
            yield Violation("one run an event", f"the event {name} was answered with several sequences: {seqs}")
        if found > 1 or (seqs and found == 0):
            yield Violation(
                "one run an event", f"the event {name} was answered with {seqs}, and has started {found} runs"
            )


def one_run_a_tick(evidence: Evidence) -> Iterator[Violation]:
    """The cron trigger starts one run for each second, also for those in which nothing ran."""
    ticks = evidence.ledger.ticks
    found = Counter(_instant(history) for history in evidence.histories.values() if _trigger(history) == CRON)
    for second, count in found.items():
        if count > 1:
            yield Violation("one run a tick", f"the cron trigger has started {count} runs for {_text(second)}")
    if ticks is not None:
        for second in range(ticks.first, ticks.last + 1):
            if not found[second]:
                yield Violation("one run a tick", f"the cron trigger has started no run for {_text(second)}")


def no_start_too_early(evidence: Evidence) -> Iterator[Violation]:
    for start in evidence.ledger.starts.values():
        history = evidence.histories.get(start.answers[0]) if start.answers else None
        begun = history.account.started if history else None
        if (
            history
            and start.run_at
            and history.count("workflow.scheduled")
            and begun
            and begun.at < start.run_at - EARLY_S
        ):
            yield Violation(
                "scheduled start", f"it started {start.run_at - begun.at:.3f} s before its time", start.answers[0]
            )


def unscheduled_never_start(evidence: Evidence) -> Iterator[Violation]:
    for run_id in evidence.ledger.unscheduled:
        history = evidence.histories.get(run_id)
        if history and (history.count("workflow.started") or history.account.status != "cancelled"):
            yield Violation(
                "unscheduled", "it was taken back before its start, and has started or is not cancelled", run_id
            )


def nobody_starts_by_itself(evidence: Evidence) -> Iterator[Violation]:
    """Every run in the log was asked for: by a key, in a bulk, by a webhook, an event or the clock."""
    ledger = evidence.ledger
    known = {"key": set(ledger.starts), "batch": set(ledger.batches), "delivery": set(ledger.deliveries)}
    known["event"] = set(ledger.events)
    for run_id, history in evidence.histories.items():
        value = history.account.input
        asked = isinstance(value, dict) and any(value.get(name) in found for name, found in known.items())
        if not asked and _trigger(history) != CRON:
            yield Violation("asked for", f"nobody has asked for a run with the input {value}", run_id)
        if _trigger(history) not in (None, CRON, HOOK, SENT):
            yield Violation("asked for", f"there is no trigger {_trigger(history)}", run_id)


def signals_arrive(evidence: Evidence) -> Iterator[Violation]:
    """A step that waits for an acknowledged signal completes with its payload."""
    for run_id, payload in evidence.ledger.signals.items():
        history = evidence.histories.get(run_id)
        if history and (history.account.steps["wait"].output != payload or history.account.status != "completed"):
            yield Violation(
                "signal",
                f"the signal {payload!r} was acknowledged, its step gave back {history.account.steps['wait'].output!r}",
                run_id,
            )


def one_decision_a_token(evidence: Evidence) -> Iterator[Violation]:
    """One request at most is told that it decided, and what it asked for is what happened."""
    for run_id, verdicts in evidence.ledger.verdicts.items():
        history = evidence.histories.get(run_id)
        granted = [verdict.action for verdict in verdicts if verdict.status == 200]
        if len(granted) > 1:
            yield Violation("one decision a token", f"{len(granted)} requests were told that they decided", run_id)
        decided = [seen.type for seen in history.account.decisions] if history else []
        if len(decided) > 1:
            yield Violation("one decision a token", f"several decisions count: {decided}", run_id)
        wanted = {"approve": "approval.granted", "reject": "approval.rejected"}
        if granted and [wanted[granted[0]]] != decided:
            yield Violation("one decision a token", f"{granted[0]} was acknowledged, and {decided} happened", run_id)
        used = any(verdict.status == 409 for verdict in verdicts)
        if used and not granted and not any(verdict.doubted for verdict in verdicts):
            yield Violation(
                "one decision a token", "requests were told that it was decided, and none that it decided", run_id
            )


def cancelled_stay_cancelled(evidence: Evidence) -> Iterator[Violation]:
    for run_id in evidence.ledger.cancelled:
        history = evidence.histories.get(run_id)
        if history and history.account.status != "cancelled":
            yield Violation(
                "cancelled", f"its cancellation was acknowledged, and it is {history.account.status}", run_id
            )


def replayed_go_on(evidence: Evidence) -> Iterator[Violation]:
    for run_id in evidence.ledger.replayed:
        history = evidence.histories.get(run_id)
        if history and not history.account.resumes:
            yield Violation("replayed", "its replay was acknowledged, and it has not gone on", run_id)


def odd_answers(evidence: Evidence) -> Iterator[Violation]:
    for run_id, what in evidence.ledger.odd:
        yield Violation("answer", what, run_id)


def inputs_are_results(evidence: Evidence) -> Iterator[Violation]:
    """Every execution was ordered, and was given what the steps before it gave back: of several results of a step, one
    counts."""
    for execution in evidence.executions:
        history = evidence.histories.get(execution.run_id)
        if history is None:
            yield Violation(
                "executions",
                f"step {execution.step_id} of a run that is not in the log was carried out",
                execution.run_id,
            )
            continue
        wanted = digest(_input(history, execution.step_id, execution.iteration))
        name = f"step {execution.step_id}, attempt {execution.attempt}, iteration {execution.iteration}"
        if wanted != execution.input:
            yield Violation(
                "executions", f"{name} was carried out with another input than the results before it", execution.run_id
            )
        step = history.account.steps[execution.step_id]
        if (execution.iteration, execution.attempt) > (step.iteration, step.attempt):
            yield Violation("executions", f"{name} was carried out, and never ordered", execution.run_id)


def _input(history: History, step_id: str, iteration: int) -> object:
    steps, after = history.account.steps, history.workflow.steps[step_id].depends_on
    if iteration:
        return steps[step_id].inputs.get(iteration)
    if not after:
        return history.account.input
    return steps[after[0]].output if len(after) == 1 else {one: steps[one].output for one in after}


def _by_input(evidence: Evidence, name: str) -> defaultdict[str, list[str]]:
    """Run ids by what their input says under this name."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for run_id, history in evidence.histories.items():
        if isinstance(history.account.input, dict) and name in history.account.input:
            found[history.account.input[name]].append(run_id)
    return found


def _trigger(history: History) -> str | None:
    started = history.account.started
    name: str | None = (started.payload.get("trigger") or {}).get("name") if started else None
    return name


def _instant(history: History) -> int:
    started = history.account.started
    assert started is not None
    return int(datetime.fromisoformat(started.payload["trigger"]["at"]).timestamp())


def _text(second: int) -> str:
    return datetime.fromtimestamp(second).astimezone().isoformat()
