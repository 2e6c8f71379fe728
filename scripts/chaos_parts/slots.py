"""What a history says of the slots of limits: a run that has limits is pending until it has all its slots, and an
execution that has some is not begun before. A pause takes back what is asked for and not complete; whatever has ended
holds nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from penstock.engine.run.slots.plans import SlotsPlan
from penstock.engine.run.workflow import StepPlan

from . import step_events
from .step_account import Seen, StepAccount

if TYPE_CHECKING:
    from .account import Account

RUN = ""  # in place of the id of an execution
ANSWERS = ("step.started", "step.completed", "step.continue")


class Slot(Struct):
    """A slot that the history says was granted: of which limit (kind, scope and key), to which holder, since when, and
    the event after which nobody needs it any more. `inherited`: it is an ancestor's."""

    limit_id: str
    limit: tuple[str, str, str | None]
    holder: str
    since: Seen
    inherited: bool = False
    end: Seen | None = None


class Acquisition(Struct):
    """The slots of one attempt and iteration, or of a run after so many resumptions (`attempt`), as far as they were
    granted, in the order of `wanted`. `pauses` is how often its run had been paused when it asked for them."""

    wanted: SlotsPlan
    attempt: int
    iteration: int
    pauses: int
    granted: list[Slot] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        return len(self.granted) == len(self.wanted.limits)


class Slots(Struct):
    """Of one run: `open` by owner, `all` that were ever granted and wanted. `refused` is the event that lets the run
    not begin. `resumed` is the event by which it is to go on when it has its slots, `completed` what somebody has
    completed by hand meanwhile."""

    open: dict[str, Acquisition] = field(default_factory=dict)
    all: list[Slot] = field(default_factory=list)
    refused: Seen | None = None
    resumed: Seen | None = None
    completed: Seen | None = None


def take(account: Account, seen: Seen) -> None:
    """A grant, or a refusal, by a limit. What nobody waits for changes nothing."""
    said: dict[str, Any] = seen.payload
    run_id, _, holder = said["holder"].partition(".")
    if account.run_id and run_id != account.run_id:
        account.problems.append(f"{seen.type} ({seen.seq}) to {said['holder']}, which is none of this run")
    if seen.type == "limit.refused":
        _refused(account, seen, holder)
        return
    owner = said.get("step_id") or RUN
    found = account.slots.open.get(owner) or _asking(account, owner)
    given_up = owner == RUN and account.slots.refused is not None
    if found is None or found.complete or given_up or holder != _holder(owner, found):
        account.late += 1
        return
    limit = found.wanted.limits[len(found.granted)]
    if (said["kind"], said["scope"]) != (limit.kind.value, limit.scope):
        account.late += 1
        return
    name = said["kind"], said["scope"], said.get("key")
    slot = Slot(said["limit_id"], name, said["holder"], seen, said.get("inherited", False))
    found.granted.append(slot)
    account.slots.open[owner] = found
    account.slots.all.append(slot)
    if owner == RUN and found.complete:
        begin(account, seen)


def begin(account: Account, seen: Seen) -> None:
    """The run has all its slots: it starts, or goes on after its failure."""
    slots = account.slots
    resumed, completed, slots.resumed, slots.completed = slots.resumed, slots.completed, None, None
    if resumed is None:
        account.status = "running"
        account.enter(seen)
        return
    account.go_on(seen, (resumed.payload or {}).get("holds"))
    found = None if completed is None else account.find(completed.step_id or "")
    if completed is not None and found is not None:
        step_events.take(account, replace(completed, at=seen.at), *found)


def completed_by_hand(account: Account, seen: Seen) -> None:
    """A step of a run that waits for its slots: the one that it holds as it is to go on, which completes then."""
    slots = account.slots
    held = None if slots.resumed is None else (slots.resumed.payload or {}).get("holds")
    if slots.completed is None and held is not None and held == seen.step_id:
        slots.completed = seen
    else:
        account.late += 1


def settle(account: Account, seen: Seen) -> None:
    """After an event: what is over holds nothing any more."""
    for owner, found in list(account.slots.open.items()):
        if _is_over(account, owner, found):
            del account.slots.open[owner]
            for slot in found.granted:
                slot.end = seen


def check_begin(account: Account, seen: Seen, step: StepAccount, plan: StepPlan) -> None:
    """A worker has an execution only when it has all its slots."""
    by_worker = seen.type in ANSWERS or (seen.type == "step.failed" and seen.worker is not None)
    if not by_worker or plan.slots is None or plan.handles is not None or not _is_out(step):
        return
    if seen.attempt is not None and (seen.attempt, seen.iteration or 0) != (step.attempt, step.iteration):
        return
    found = account.slots.open.get(plan.id)
    if found is None or not found.complete:
        account.problems.append(f"{seen.type} ({seen.seq}) of {plan.id}, which has not all its slots")


def _refused(account: Account, seen: Seen, holder: str) -> None:
    found = account.slots.open.get(RUN) or _asking(account, RUN)
    if account.status != "pending" or account.slots.refused or found is None or holder != _holder(RUN, found):
        account.late += 1
    else:
        account.slots.refused = seen


def _asking(account: Account, owner: str) -> Acquisition | None:
    """What the owner has asked for and has nothing of yet; None: it asks for nothing."""
    if account.pause is not None:
        return None
    if owner == RUN:
        wanted = account.workflow.slots
        waits = account.status == "pending" and account.slots.refused is None
        return Acquisition(wanted, account.resumes, 0, account.pauses) if wanted is not None and waits else None
    found = account.find(owner) if account.status == "running" else None
    if found is None or found[1].slots is None or found[1].handles is not None or not _is_out(found[0]):
        return None
    step, plan = found
    assert plan.slots is not None
    return None if step.began else Acquisition(plan.slots, step.attempt, step.iteration, account.pauses)


def _holder(owner: str, found: Acquisition) -> str:
    """The holder's name without its run: no two acquisitions share one."""
    own = f"{found.attempt}" if owner == RUN else f"{owner}.{found.iteration}.{found.attempt}"
    return f"{own}+{found.pauses}" if found.pauses else own


def _is_over(account: Account, owner: str, found: Acquisition) -> bool:
    if account.ended or (account.pause is not None and not found.complete):
        return True
    if owner == RUN:
        return False
    known = account.find(owner)
    if known is None or not _is_out(known[0]):
        return True
    return (known[0].attempt, known[0].iteration) != (found.attempt, found.iteration)


def _is_out(step: StepAccount) -> bool:
    """What waits for its next attempt has no slot, nor has a planner whose worker is done."""
    return step.status == "out" and not (step.paused or step.planned or step.fragment is not None)
