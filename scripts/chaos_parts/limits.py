"""Limits hold at every moment, by their own log and by the histories of runs; and no slot is without a holder that goes
on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping

from penstock.engine.run.slots.plans import SlotsPlan
from penstock.engine.run.workflow import Workflow

from .evidence import Evidence, Violation
from .limit_story import Allowed, LimitStory, is_whole, told
from .slots import Slot

RATE = "rate"


def limits_hold_by_their_log(evidence: Evidence) -> Iterator[Violation]:
    """After no decision more hold a slot, or more tokens are taken, than the definitions allow; nobody is granted what
    it does not wait for, or refused while there is room."""
    for story in _stories(evidence).values():
        for problem in story.problems:
            yield Violation("limits by their log", f"{story.title}: {problem}")


def limits_hold_by_the_histories(evidence: Evidence) -> Iterator[Violation]:
    """At no moment more runs, or executions, go on than their limit allows: each from its grant to its end, by the
    times at which the broker stored both."""
    allowed = _allowed(evidence)
    moments = defaultdict[tuple[str, str, str | None], list[tuple[float, int, Slot]]](list)
    for history in evidence.histories.values():
        for slot in history.account.slots.all:
            if slot.inherited or slot.limit[0] == RATE:
                continue
            moments[slot.limit].append((slot.since.at, 1, slot))
            if slot.end is not None:
                moments[slot.limit].append((slot.end.at, -1, slot))
    for limit, found in moments.items():
        open_ = dict[str, Slot]()
        most = allowed[limit[:2]].limit
        for at, step, slot in sorted(found, key=lambda one: one[:2]):
            if step < 0:
                open_.pop(slot.holder, None)
                continue
            open_[slot.holder] = slot
            if len(open_) > most:
                what = f"{limit}: at {at:.3f} {sorted(open_)} go on, and {most} may"
                yield Violation("limits by the histories", what, slot.holder.partition(".")[0])


def slots_have_holders(evidence: Evidence) -> Iterator[Violation]:
    """Who holds a slot by the limit's log goes on by its own history, and the other way round. No slot had to be taken
    from who did not hold it."""
    stories = _stories(evidence)
    going_on = {
        (slot.limit_id, slot.holder)
        for history in evidence.histories.values()
        for found in history.account.slots.open.values()
        for slot in found.granted
        if not slot.inherited and slot.limit[0] != RATE
    }
    for limit_id, story in stories.items():
        for holder in story.backstops:
            yield Violation("slots", f"{story.title}: the slot of {holder} was astray", _run_of(evidence, holder))
        for holder in sorted(story.holders):
            if (limit_id, holder) not in going_on:
                yield Violation(
                    "slots", f"{story.title}: {holder} still holds it, and is over", _run_of(evidence, holder)
                )
    for limit_id, holder in sorted(going_on):
        story_of = stories.get(limit_id)
        if story_of is None or (story_of.sure and holder not in story_of.holders):
            yield Violation("slots", f"{holder} has a slot of the limit {limit_id}, whose log says nothing of it")


def nobody_waits_while_there_is_room(evidence: Evidence) -> Iterator[Violation]:
    """When all is quiet: nobody waits for a free slot, and nobody who has ended waits at all."""
    for story in _stories(evidence).values():
        room = story.allowed is None or story.allowed.per_s is not None or len(story.holders) < story.allowed.limit
        for holder in sorted(story.waiting):
            run_id = _run_of(evidence, holder)
            if room:
                yield Violation("room", f"{story.title}: {holder} waits, and there is room", run_id)
            elif run_id is None or evidence.histories[run_id].account.ended:
                yield Violation("room", f"{story.title}: {holder} waits, and has ended", run_id)


def news_is_true(evidence: Evidence) -> Iterator[Violation]:
    """What a run is told of a limit was decided; who was refused does not go on, and who was replaced is cancelled. The
    log of limits is in no backup: a restored service begins another one."""
    stories = _stories(evidence)
    begins = min((one.at for one in evidence.limit_log), default=math.inf) if evidence.restored else 0.0
    whole = is_whole(evidence.limit_log)
    for run_id, history in evidence.histories.items():
        for seen in history.seen:
            said = seen.payload or {}
            if not seen.type.startswith("limit.") or said.get("inherited") or seen.at < begins:
                continue
            story = stories.get(said["limit_id"])
            decided = set[str]() if story is None else story.granted if seen.type == "limit.granted" else story.refused
            if (whole if story is None else story.whole) and said["holder"] not in decided:
                yield Violation("limit news", f"{seen.type} ({seen.seq}) to {said['holder']} was not decided", run_id)
        refused, status = history.account.slots.refused, history.account.status
        if refused is not None and status != "cancelled":
            yield Violation("limit news", f"it was refused ({refused.seq}), and is {status}", run_id)
    for story in stories.values():
        for holder in sorted(story.evicted):
            run_id = holder.partition(".")[0]
            found = evidence.histories.get(run_id)
            if found is not None and not _has_made_room(found.account.slots.all, holder):
                yield Violation("limit news", f"{holder} was to make room for a newer run, and goes on", run_id)


def _has_made_room(slots: list[Slot], holder: str) -> bool:
    return all(slot.end is not None for slot in slots if slot.holder == holder)


def _stories(evidence: Evidence) -> dict[str, LimitStory]:
    return told(evidence.limit_log, _allowed(evidence))


def _allowed(evidence: Evidence) -> Mapping[tuple[str, str], Allowed]:
    """What the definitions allow, by kind and scope: the largest, where they differ."""
    found: dict[tuple[str, str], Allowed] = {}
    workflows = {history.workflow.digest + history.workflow.name: history for history in evidence.histories.values()}
    for history in workflows.values():
        for plan in _plans(history.workflow):
            for limit in plan.limits:
                name, one = (limit.kind.value, limit.scope), limit.allowed
                said = Allowed(one.limit, one.per_s, one.burst)
                if name not in found or found[name].limit < said.limit:
                    found[name] = said
    return found


def _plans(workflow: Workflow) -> Iterator[SlotsPlan]:
    if workflow.slots is not None:
        yield workflow.slots
    for plan in workflow.steps.values():
        for one in (plan, plan.each):
            if one is not None and one.slots is not None:
                yield one.slots


def _run_of(evidence: Evidence, holder: str) -> str | None:
    run_id = holder.partition(".")[0]
    return run_id if run_id in evidence.histories else None
