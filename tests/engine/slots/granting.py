"""A play in which limits answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.engine.run.commands import Command, ReleaseSlot, RequestSlot
from penstock.engine.run.event_payloads import SlotGrant, SlotRefusal
from penstock.engine.run.events import LimitGranted, LimitRefused
from penstock.engine.run.expansion import expanded
from penstock.engine.run.slots.holders import slots_of
from penstock.engine.run.workflow import Workflow
from tests.engine.build import RUN_ID, Play, only, step, workflow

ONE: list[dict[str, Any]] = [{"limit": 1}]
RATE: list[dict[str, Any]] = [{"limit": 5, "per": "1s"}]


class Limited(Play):
    """`let_in` grants what was asked for, `asked` and `given_back` read commands."""

    def let_in(self, request: RequestSlot, *, inherited: bool = False) -> list[Command]:
        limits = slots_of(expanded(self.workflow, self.run), request.step_id or "")
        assert limits is not None
        limit = limits.limits[request.number]
        grant = SlotGrant(
            request.holder,
            limit_of(request),
            limit.kind,
            limit.scope,
            step_id=request.step_id,
            inherited=inherited,
        )
        return self.tell(LimitGranted(run_id=self.run_id, timestamp=self._stamp(), payload=grant))

    def turn_away(self, request: RequestSlot, reason: str = "limit") -> list[Command]:
        refusal = SlotRefusal(request.holder, limit_of(request), reason)
        return self.tell(LimitRefused(run_id=self.run_id, timestamp=self._stamp(), payload=refusal))

    def let_all_in(self, commands: Iterable[Command]) -> list[Command]:
        """Everything that is asked for is granted, until nothing waits; returns all other commands."""
        left, ahead = list[Command](), list(commands)
        while ahead:
            command = ahead.pop(0)
            if isinstance(command, RequestSlot):
                ahead = [*self.let_in(command), *ahead]
            else:
                left.append(command)
        return left


def limit_of(request: RequestSlot) -> str:
    return f"{request.step_id or 'run'}#{request.number}"


def asked(commands: Iterable[Command]) -> list[tuple[str, int]]:
    """The holders, without the run's id, and the numbers of the limits that are asked."""
    return [(one.holder.removeprefix(f"{RUN_ID}."), one.number) for one in only(RequestSlot, commands)]


def given_back(commands: Iterable[Command]) -> list[tuple[str, str | int]]:
    """The holders, and the limits: their ids where they had granted the slot, else their numbers."""
    releases = only(ReleaseSlot, commands)
    return [(one.holder.removeprefix(f"{RUN_ID}."), one.limit_id or one.number) for one in releases]


def limited(*steps: Mapping[str, object], **fields: object) -> Limited:
    return Limited(workflow(*steps, **fields))


def one_step(**fields: object) -> Workflow:
    return workflow(step("a", concurrency=ONE, **fields))
