"""Bugs in limits, on the side of who decides and of who asks, put in on purpose, as in mutants.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec.structs import replace

from penstock.actors.runs.commands.slots import Slots
from penstock.actors.runs.limits import limit_actor
from penstock.actors.runs.limits.limit_actor import LimitActor
from penstock.actors.runs.limits.partition_limits import PartitionLimits
from penstock.broker import message_ids, names
from penstock.broker.limits.limit_log import LimitLog
from penstock.broker.nats.headers import MSG_ID
from penstock.broker.nats.publisher import ack_seq
from penstock.engine.limits import allot, fold
from penstock.engine.limits.records import Allowed, Decided, Released, encode
from penstock.engine.limits.state import LimitState
from penstock.engine.limits.waiting import WaitingLine
from penstock.engine.run.slots import holding
from penstock.engine.run.state import Run, StepState, StepStatus
from tests.simulation.clock import TIME

Patch: TypeAlias = tuple[Any, str, Any]


def _loses_releases_of_executions() -> Patch:
    release = Slots.release

    async def lost(slots: Slots, workflow: Any, run: Run, command: Any, outputs: Any) -> Any:
        return None if command.step_id else await release(slots, workflow, run, command, outputs)

    return Slots, "release", lost


def _loses_releases_of_runs() -> Patch:
    release = Slots.release

    async def lost(slots: Slots, workflow: Any, run: Run, command: Any, outputs: Any) -> Any:
        return await release(slots, workflow, run, command, outputs) if command.step_id else None

    return Slots, "release", lost


def _counts_releases() -> Patch:
    """In place of names: a release that comes twice frees the slot of somebody else."""
    released = fold._released

    def counting(state: LimitState, release: Released, seq: int) -> None:
        known = release.holder in state.holders or release.holder in state.waiting.entries
        if not known and state.holders:
            release = replace(release, holder=next(iter(state.holders)))
        released(state, release, seq)

    return fold, "_released", counting


def _gives_slots_back_too_early() -> Patch:
    """As soon as a worker has begun."""
    is_out = holding._is_out

    def early(run: Run, owner: str, step: StepState, slot: Any) -> bool:
        return step.status is StepStatus.QUEUED and is_out(run, owner, step, slot)

    return holding, "_is_out", early


def _keeps_what_it_does_not_want() -> Patch:
    return holding, "_unwanted", lambda grant: []


def _takes_over_without_the_log() -> Patch:
    """An owner begins with what is asked from now on."""

    async def blind(limits: PartitionLimits) -> None:
        limits._read = limits._ready = True
        held, limits._held = limits._held, []
        for delivery in held:
            limits.take(delivery)

    return PartitionLimits, "catch_up", blind


def _decides_whatever_was_decided() -> Patch:
    async def decide(log: LimitLog, decided: Decided, last_seq: int) -> int:
        headers = {MSG_ID: TIME.uuid4().hex}
        return ack_seq(
            await log._publisher.send(names.limit_decision_subject(decided.name.id), encode(decided), headers)
        )

    return LimitLog, "decide", decide


def _replays_decisions_as_if_they_knew_all_releases() -> Patch:
    """Whoever reads the log has somebody hold a slot that was given up while it was granted."""
    granted = fold._granted

    def knowing(state: LimitState, decided: Decided, seq: int) -> None:
        granted(state, replace(decided, upto=seq), seq)

    return fold, "_granted", knowing


def _replays_full_decisions_as_if_they_knew_all_releases() -> Patch:
    """A release that is stored between what such a decision knows and the decision itself is forgotten at a replay."""
    full = fold._full

    def knowing(state: LimitState, decided: Decided) -> None:
        full(state, replace(decided, upto=state.last))

    return fold, "_full", knowing


def _grants_one_too_many() -> Patch:
    decide = allot.allot

    def generous(state: LimitState, allowed: Allowed, now: float) -> Decided | None:
        decided = decide(state, replace(allowed, limit=allowed.limit + 1), now)
        return None if decided is None else replace(decided, allowed=allowed)

    return limit_actor, "allot", generous


def _takes_no_turns() -> Patch:
    pick = WaitingLine.pick
    return WaitingLine, "pick", lambda line, count, turn: pick(line, count, "")


def _knows_no_priority() -> Patch:
    add = WaitingLine.add
    return WaitingLine, "add", lambda line, request, order, seq: add(line, replace(request, priority=0), order, seq)


def _has_everybody_wait() -> Patch:
    return allot, "_displaced", lambda state, granted: ((), ())


def _grants_late_requests_under_the_first_id() -> Patch:
    return message_ids, "of_slot_grant", lambda holder, limit_id, decision: f"{holder}.{limit_id}.limit.granted"


def _removes_what_idle_limits_need() -> Patch:
    return PartitionLimits, "_idle_needed", lambda limits, below: []


def _informs_runs_once() -> Patch:
    """A crash before the news are out loses them."""

    async def nothing(actor: LimitActor) -> None:
        pass

    return LimitActor, "_inform_again", nothing


MUTANTS: dict[str, Callable[[], Patch]] = {
    mutant.__name__.removeprefix("_"): mutant
    for mutant in (
        _loses_releases_of_executions,
        _loses_releases_of_runs,
        _counts_releases,
        _gives_slots_back_too_early,
        _keeps_what_it_does_not_want,
        _takes_over_without_the_log,
        _decides_whatever_was_decided,
        _replays_decisions_as_if_they_knew_all_releases,
        _replays_full_decisions_as_if_they_knew_all_releases,
        _grants_one_too_many,
        _takes_no_turns,
        _knows_no_priority,
        _has_everybody_wait,
        _grants_late_requests_under_the_first_id,
        _removes_what_idle_limits_need,
        _informs_runs_once,
    )
}
