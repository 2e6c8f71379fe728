"""What was answered with success must be so: each rule holds the ledger against the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from .evidence import Evidence, History, Violation
from .executions import Execution, digest
from .given import given
from .ledger import CallAnswer
from .operations import key_of
from .workflows import CRON, HOOK, ROUTE, SENT

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
        if any(answer != batch.run_ids for answer in batch.answers):
            yield Violation("bulk all or none", f"the key of {name} was answered with several lists of runs")
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
        if history and (history.account.started is not None or history.account.status != "cancelled"):
            yield Violation(
                "unscheduled", "it was taken back before its start, and has started or is not cancelled", run_id
            )


def nobody_starts_by_itself(evidence: Evidence) -> Iterator[Violation]:
    """Every run in the log was asked for: by a key, in a bulk, by a webhook, an event or the clock."""
    ledger = evidence.ledger
    known = {"key": set(ledger.starts), "batch": set(ledger.batches), "delivery": set(ledger.deliveries)}
    known["event"], known["prune"] = set(ledger.events), set(ledger.prunings)
    for run_id, history in evidence.histories.items():
        value = _sent(history)
        asked = isinstance(value, dict) and any(value.get(name) in found for name, found in known.items())
        if not asked and not from_within(history) and _trigger(history) != CRON:
            yield Violation("asked for", f"nobody has asked for a run with the input {value}", run_id)
        if _trigger(history) not in (None, CRON, HOOK, SENT, ROUTE):
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


def events_are_stored(evidence: Evidence) -> Iterator[Violation]:
    """An event that was acknowledged is in the stream as it was sent, once, with the sequence that was answered."""
    stored = defaultdict[tuple[str, str], list[int]](list)
    for one in evidence.events:
        stored[one.name, digest(one.body)].append(one.seq)
    for key, sent in evidence.ledger.sent.items():
        found = stored[sent.name, digest(sent.body)]
        if len(set(sent.seqs)) > 1:
            yield Violation("events", f"the event {key} was answered with several sequences: {sent.seqs}")
        if len(found) > 1 or (sent.seqs and found != sent.seqs[:1]):
            yield Violation("events", f"the event {key} was answered with {sent.seqs}, and is stored as {found}")


def callers_get_the_answer(evidence: Evidence) -> Iterator[Violation]:
    """Who called a workflow gets what the run's first response says, or its end without one, or the run's id."""
    for key, answers in evidence.ledger.calls.items():
        for answer in answers:
            history = evidence.histories.get(answer.run_id)
            problem = "there is no such run" if history is None else _misanswered(history, answer)
            if problem:
                yield Violation("calls", f"the call {key} was answered {answer.status}: {problem}", answer.run_id)


def _misanswered(history: History, answer: CallAnswer) -> str | None:
    replies = [one.facts["reply"] for one in history.account.begun if "reply" in one.facts]
    if answer.status == 202:
        return None if answer.body == {"run_id": answer.run_id} else f"{answer.body} is no id of its run"
    if answer.status == 502:
        return "it has responded" if replies else None
    said = (replies[0].get("status", 200), replies[0].get("body")) if replies else (200, None)
    return None if (answer.status, answer.body) == said else f"{answer.body}, and the run says {said}"


def requests_are_answered(evidence: Evidence) -> Iterator[Violation]:
    """Every request was ordered by a run, with what its step says and the key of its task; and what the step gives back
    is one of the answers."""
    answered = defaultdict[str, list[Any]](list)
    for asked in evidence.ledger.requests:
        run_id, _, step_id = asked.key.partition(".")
        history = evidence.histories.get(run_id)
        said = None if history is None or step_id not in history.account.steps else _asks(history)
        if said != (asked.path, asked.by) and not evidence.restored:  # it may be of a time after the backup
            yield Violation("requests", f"{asked.key} has asked for {asked.path}, by {asked.by}; its run says {said}")
        answered[run_id].append((asked.status, asked.body))
    for run_id, history in evidence.histories.items():
        fetch = history.account.steps.get("fetch")
        if fetch is not None and fetch.status == "completed":
            given_back = fetch.output["status"], fetch.output["body"]
            if fetch.output["status"] != 200 or given_back not in answered[run_id]:
                yield Violation("requests", f"it was answered {given_back}, which nobody has said", run_id)


def _asks(history: History) -> tuple[str, str]:
    account = history.account
    return f"/{account.input['key']}", (account.steps["a"].output or {}).get("by", "")


def one_rerun_a_run(evidence: Evidence) -> Iterator[Violation]:
    """A run that was asked to be repeated once has one repeat at the most, beside those that were asked for with a key;
    and each that was answered is there, with the same input."""
    repeats = defaultdict[str, list[str]](list)
    for run_id, history in evidence.histories.items():
        if (first := history.account.origin("rerun_of")) is not None:
            if key_of(history, evidence) not in evidence.ledger.keyed_reruns:
                repeats[first].append(run_id)
            before = evidence.histories.get(first)
            if before is None or before.account.input != history.account.input:
                yield Violation("reruns", f"it repeats run {first}, with another input", run_id)
    for first, found in repeats.items():
        if len(found) > 1:
            yield Violation("reruns", f"it was to be repeated once, and {found} are repeats of it", first)
    for first, answered in evidence.ledger.reruns.items():
        if lost := set(answered) - set(repeats[first]):
            yield Violation("reruns", f"its repeats {sorted(lost)} were acknowledged, and are not there", first)


def odd_answers(evidence: Evidence) -> Iterator[Violation]:
    for run_id, what in evidence.ledger.odd:
        yield Violation("answer", what, run_id)


def inputs_are_results(evidence: Evidence) -> Iterator[Violation]:
    """Every execution was ordered, and was given what the steps before it gave back: of several results of a step, one
    counts."""
    for execution in evidence.executions:
        history = evidence.histories.get(execution.run_id)
        if execution.run_id in evidence.removed:
            continue
        if history is None:
            yield Violation(
                "executions",
                f"step {execution.step_id} of a run that is not in the log was carried out",
                execution.run_id,
            )
            continue
        name = f"step {execution.step_id}, attempt {execution.attempt}, iteration {execution.iteration}"
        found = history.account.find(execution.step_id)
        ordered = (0, 0) if found is None else (found[0].iteration, found[0].attempt)
        if (execution.iteration, execution.attempt) > ordered:
            yield Violation("executions", f"{name} was carried out, and never ordered", execution.run_id)
        elif execution.input != _given(history, execution):
            yield Violation(
                "executions", f"{name} was carried out with another input than the results before it", execution.run_id
            )


def _given(history: History, execution: Execution) -> str | None:
    """The digest of the input; None when what it is made of is not there."""
    try:
        return digest(given(history.account, *execution.key))
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def _by_input(evidence: Evidence, name: str) -> defaultdict[str, list[str]]:
    """Run ids by what their input says under this name."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for run_id, history in evidence.histories.items():
        value = _sent(history)
        if isinstance(value, dict) and name in value and not from_within(history):
            found[value[name]].append(run_id)
    return found


def _sent(history: History) -> Any:
    """What a user has sent: the run's input, or the body of the request that the input describes."""
    value = history.account.input
    return value["body"] if _trigger(history) == ROUTE else value


def from_within(history: History) -> bool:
    """Whether a run has started it: its parent, one that has failed, one that it repeats."""
    return any(map(history.account.origin, ("parent", "failure_of", "rerun_of")))


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
