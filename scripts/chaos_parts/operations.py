"""What operators were promised must be so: pauses, steps completed by hand, reruns, labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from .account import Account
from .evidence import Evidence, History, Violation
from .executions import digest
from .ledger import Rerun
from .step_account import DONE, Seen, StepAccount

PAUSE_ENDS = frozenset({"workflow.unpaused", "workflow.cancelled", "workflow.compensating", "workflow.failed"})
LABEL = "rerun"  # of the runs that repeat others: which request has asked for it


def paused_runs_are_paused(evidence: Evidence) -> Iterator[Violation]:
    """Each pause that was acknowledged is in the history, and each that was taken back has an end there."""
    for run_id in evidence.ledger.paused:
        history = evidence.histories.get(run_id)
        if history and not history.count("workflow.paused"):
            yield Violation("pauses", "its pause was acknowledged, and it has none", run_id)
    for run_id in evidence.ledger.resumed:
        history = evidence.histories.get(run_id)
        if history and not _pause_has_ended(history):
            yield Violation("pauses", "it was acknowledged that it goes on, and its pause has no end", run_id)


def _pause_has_ended(history: History) -> bool:
    """Whether what ends a pause comes after the first one: it is taken back, or the run is cancelled or undone, or has
    failed. It is not paused when it goes on after that, so a request to resume it is answered as done."""
    failed = {seen.seq for seen in history.account.failures}
    types = [seen.type for seen in history.seen if seen.type != "workflow.failed" or seen.seq in failed]
    begun = types.index("workflow.paused") if "workflow.paused" in types else None
    return begun is None or not PAUSE_ENDS.isdisjoint(types[begun:])


def selections_are_what_was_asked_for(evidence: Evidence) -> Iterator[Violation]:
    """A request by workflow and labels takes no other run."""
    for selected in evidence.ledger.selected:
        for run_id in selected.run_ids:
            history = evidence.histories.get(run_id)
            if history is None:
                yield Violation("selections", "it was selected, and is not there", run_id)
            elif (
                history.workflow.name != selected.workflow or not selected.labels.items() <= labels_of(history).items()
            ):
                what = f"a run of {history.workflow.name} with {labels_of(history)} was selected"
                yield Violation("selections", f"{what} as one of {selected.workflow} with {selected.labels}", run_id)


def steps_by_hand_stay_so(evidence: Evidence) -> Iterator[Violation]:
    """A step that was completed by hand has that output, and no other step was completed so."""
    asked = defaultdict[tuple[str, str], set[str]](set)
    for wanted in evidence.ledger.by_hand:
        asked[wanted.run_id, wanted.step_id].add(digest(wanted.output))
        history = evidence.histories.get(wanted.run_id)
        if not wanted.done or history is None:
            continue
        if _ended_before_it_went_on(history.account, wanted.step_id):
            continue
        step = history.account.steps.get(wanted.step_id)
        if step is None or not step.overridden or digest(step.output) != digest(wanted.output):
            what = "is not there" if step is None else f"is {step.status} with {step.output}"
            yield Violation("by hand", f"{wanted.step_id} was completed by hand, and {what}", wanted.run_id)
    for run_id, history in evidence.histories.items():
        for step_id, step in history.account.steps.items():
            if step.overridden and digest(step.output) not in asked[run_id, step_id]:
                yield Violation("by hand", f"nobody has completed {step_id} with {step.output}", run_id)


def _ended_before_it_went_on(account: Account, step_id: str) -> bool:
    """The run waited for its slots, to go on with this step completed by hand, when it was cancelled."""
    waits = account.slots.completed
    return account.ended and waits is not None and waits.step_id == step_id


def attempts_begin_now(evidence: Evidence) -> Iterator[Violation]:
    """The wait for an attempt that was ended is over."""
    for run_id, step_id, attempt in evidence.ledger.begun_now:
        history = evidence.histories.get(run_id)
        if history and not any(_ends_wait(seen, step_id, attempt) for seen in history.seen):
            yield Violation("begun now", f"attempt {attempt} of {step_id} was to begin, and still waited", run_id)


def _ends_wait(seen: Seen, step_id: str, attempt: int) -> bool:
    if seen.type != "timer.fired" or seen.payload.get("attempt") != attempt:
        return False
    return seen.payload["timer"].partition("~")[0] == f"retry.{step_id}"


def one_rerun_a_key(evidence: Evidence) -> Iterator[Violation]:
    """A key repeats one run once, from the step that was named, with the labels that were given."""
    found = defaultdict[str, list[str]](list)
    for run_id, history in evidence.histories.items():
        if (key := key_of(history, evidence)) is not None:
            found[key].append(run_id)
            wanted = evidence.ledger.keyed_reruns.get(key)
            said = history.account.origin("rerun_of"), history.account.origin("rerun_from")
            if wanted is None or said != (wanted.first, wanted.from_step):
                yield Violation("keyed reruns", f"the key {key} was given for {wanted}, and it repeats {said}", run_id)
    for key, wanted in evidence.ledger.keyed_reruns.items():
        if len(found[key]) > 1 or len({*wanted.answers}) > 1:
            yield Violation("keyed reruns", f"the key {key} has started {found[key]}, answered {wanted.answers}")
        if not {*wanted.answers} <= {*found[key]}:
            yield Violation("keyed reruns", f"{wanted.answers} were acknowledged, {found[key]} are there", wanted.first)


def key_of(history: History, evidence: Evidence) -> str | None:
    """The key that has asked for this run, which repeats another. A repeat of such a run has its labels, too, and was
    asked for by others."""
    first, key = history.account.origin("rerun_of"), labels_of(history).get(LABEL)
    before = None if first is None else evidence.histories.get(first)
    return None if first is None or (before is not None and labels_of(before).get(LABEL) == key) else key


def reruns_take_over_what_is_done(evidence: Evidence) -> Iterator[Violation]:
    """From a step on, nothing is taken over; of all else what had completed is, as it was or as it was given."""
    for run_id, history in evidence.histories.items():
        from_step, first = history.account.origin("rerun_from"), history.account.origin("rerun_of")
        before = evidence.histories.get(first) if from_step else None
        if before is not None:
            wanted = evidence.ledger.keyed_reruns.get(labels_of(history).get(LABEL, ""), Rerun(first))
            for problem in _untaken(before, history, from_step, wanted):
                yield Violation("taken over", problem, run_id)


def _untaken(before: History, after: History, from_step: str, wanted: Rerun) -> Iterator[str]:
    below = below_of(before.account, from_step)
    begun = after.account.started
    assert begun is not None
    for step_id, step in before.account.steps.items():
        new = after.account.steps.get(step_id)
        plan = before.account.plans[step_id]
        if plan.handles is not None or plan.planner is not None or step.fragment is not None:
            continue
        taken = (
            new is not None
            and new.taken
            and any(
                seen.type == "step.taken_over" and seen.step_id == step_id and seen.payload["status"] in DONE
                for seen in after.seen
            )
        )
        was_done = step.status in DONE and (step.done_seq or 0) < begun.seq
        if taken and step_id in below:
            yield f"{step_id} is {from_step}, or depends on it, and is taken over"
        elif taken and not was_done:
            yield f"{step_id} is taken over, and was {step.status}"
        elif not taken and was_done and step_id not in below and not before.account.resumes:
            yield f"{step_id} was {step.status} and does not depend on {from_step}, and is not taken over"
        elif taken and new is not None:
            output = wanted.outputs.get(step_id, step.output)
            if digest(new.output) != digest(output):
                yield f"{step_id} is taken over with {new.output}, not {output}"
            if step_id not in wanted.outputs:
                yield from _otherwise(step_id, step, new)


def _otherwise(step_id: str, step: StepAccount, new: StepAccount) -> Iterator[str]:
    if new.status != step.status:
        yield f"{step_id} was {step.status}, and is taken over as {new.status}"
    if new.elements is not None and len(new.elements) != len(step.elements or ()):
        yield f"{step_id} had {len(step.elements or ())} elements, and is taken over with {len(new.elements)}"


def below_of(account: Account, from_step: str) -> set[str]:
    """The step and all that depends on it; of a step of a plan, also what depends on its planner."""
    found, ahead = set[str](), [from_step]
    while ahead:
        step_id = ahead.pop()
        if step_id in found:
            continue
        found.add(step_id)
        planner = account.plans[step_id].planner
        above = {step_id} | ({planner} if planner else set())
        ahead += [one for one, plan in account.plans.items() if above & {*plan.depends_on}]
        while planner is not None:
            planner = account.plans[planner].planner
            ahead += [one for one, plan in account.plans.items() if planner in plan.depends_on]
    return found


def labels_find_their_runs(evidence: Evidence) -> Iterator[Violation]:
    """A run has the labels that it was started with, and a list by a label has the runs with it, and no others."""
    for start in evidence.ledger.starts.values():
        history = evidence.histories.get(start.answers[0]) if start.answers else None
        if history and labels_of(history) != start.labels:
            yield Violation(
                "labels", f"it was started with {start.labels}, and has {labels_of(history)}", history.run_id
            )
    for (name, value), listed in evidence.labelled.items():
        wanted = {run_id for run_id, one in evidence.histories.items() if labels_of(one).get(name) == value}
        if {*listed} != wanted or len(listed) != len(wanted):
            lacks, more = sorted(wanted - {*listed}), sorted({*listed} - wanted)
            yield Violation("labels", f"the list of {name}:{value} lacks {lacks}, and has {more} besides")


def labels_of(history: History) -> Mapping[str, str]:
    first = next((one for one in history.seen if one.type in ("workflow.scheduled", "workflow.started")), None)
    found: Mapping[str, str] = {} if first is None else first.payload.get("labels") or {}
    return found
