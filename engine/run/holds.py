"""Parts of a run's state that few runs have: what holds it up for a while, and the slots of limits."""

from __future__ import annotations

from msgspec import Struct

from penstock.engine.run.event_payloads import Resumed
from penstock.engine.run.events import ApprovalExpired, ApprovalGranted, ApprovalRejected, StepOverridden


class KeptDecision(Struct, frozen=True):
    """How an approval of a paused run was decided, or that nobody decided in time; `seq` is the event's sequence."""

    seq: int
    event: ApprovalGranted | ApprovalRejected | ApprovalExpired


class RunPause(Struct, frozen=True, omit_defaults=True):
    """The pause of a run, since `at` (RFC 3339), and what takes effect when it goes on.

    `left` is what remains of the workflow's timeout, in s. `children`: its children were paused, too. `starts`: the
    time has come at which the run is to start. `decisions` are of its approvals. `timers` are the names of the timers
    that have fired. `begun` are the executions whose task a worker had taken when it was withdrawn.
    """

    at: str
    left: float | None = None
    children: bool = False
    starts: bool = False
    decisions: tuple[KeptDecision, ...] = ()
    timers: tuple[str, ...] = ()
    begun: tuple[str, ...] = ()

    def decided(self, step_id: str) -> bool:
        """Whether there is a decision about this approval."""
        return any(kept.event.step_id == step_id for kept in self.decisions)


class HeldSlot(Struct, frozen=True, omit_defaults=True):
    """A slot that was granted. `inherited`: an ancestor's, which is not given back."""

    limit_id: str
    kind: str
    scope: str
    key: str | None = None
    inherited: bool = False


class SlotState(Struct, frozen=True, omit_defaults=True):
    """The slots of one attempt (and iteration) of an execution, or of a run after so many resumptions (`attempt`).

    The limits before the one with this `number` have granted theirs, and this one is asked; when all have, there is
    none with this number. `pauses` is how often the run had been paused when it asked for the first of them.
    """

    attempt: int = 1
    iteration: int = 0
    pauses: int = 0
    number: int = 0
    granted: tuple[HeldSlot, ...] = ()


class Resuming(Struct, frozen=True, omit_defaults=True):
    """How a run that has failed goes on when it has its slots. `completed` is what was completed by hand meanwhile, by
    event `seq`."""

    payload: Resumed
    completed: StepOverridden | None = None
    seq: int = 0
