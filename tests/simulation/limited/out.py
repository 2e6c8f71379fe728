"""What is really out: runs and executions that go on, by their own histories, of each limit of their definitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.worker_messages import TaskPayload
from penstock.engine.definition.definitions import ConcurrencyDef, RateDef, Step
from penstock.engine.limits.names import LimitKind, LimitName
from penstock.engine.limits.records import Requested
from penstock.engine.run.event_payloads import ParentRef
from penstock.engine.run.state import STEP_OUT, Run, RunStatus
from tests.simulation.broken import Broken
from tests.simulation.limited.definitions import TEAM, team_of
from tests.simulation.limited.log import LimitStory

if TYPE_CHECKING:
    from tests.simulation.plan import Known

NOT_YET = (RunStatus.SCHEDULED, RunStatus.PENDING)


class Execution(NamedTuple):
    run_id: str
    step_id: str
    iteration: int
    attempt: int

    def __str__(self) -> str:
        return ".".join(map(str, self))


class Out:
    """Owned by the laws of a world. All of them raise Broken."""

    def __init__(
        self, runs: Mapping[str, Run], of: Mapping[str, Known], stories: Mapping[LimitName, LimitStory]
    ) -> None:
        self._runs, self._of, self._stories = runs, of, stories
        self._executions: dict[LimitName, set[Execution]] = {}
        self._going_on: dict[LimitName, set[str]] = {}

    def requested(self, request: Requested) -> None:
        """It asks for what its definition says."""
        run, name = self._runs[request.run_id], request.name
        owner = self._of[run.run_id].definition if request.step_id is None else self._step(run, request.step_id)
        if owner is None:
            raise Broken(f"{request.step_id} asks for a slot, and has no limits", run.run_id)
        scope = run.workflow_id if request.step_id is None else f"{run.workflow_id}.{_whole(request.step_id)}"
        limits = owner.rate_limit if name.kind is LimitKind.RATE else owner.concurrency
        found = next((one for one in limits if (one.scope or scope) == name.scope), None)
        if found is None:
            raise Broken(f"{request.holder} asks for a slot of {name}, which its definition does not name", run.run_id)
        team = team_of(run.labels)
        priority = (1 if team == "none" else 7) if isinstance(owner.priority, str) else owner.priority or 0
        fair = team if isinstance(found, ConcurrencyDef) and found.fair_by else None
        wanted = (_key(found, run), found.limit, priority, fair)
        given = (name.key, request.allowed.limit, request.priority, request.fair)
        if given != wanted:
            raise Broken(f"{request.holder} asks as {given}, not as {wanted}", run.run_id)

    def queued(self, task: TaskPayload) -> None:
        """A task was put into its queue: it has all slots, and no more are out than may be."""
        run = self._runs[task.run_id]
        step = self._step(run, task.step_id)
        if step is None or not self._is_out(one := Execution(run.run_id, task.step_id, task.iteration, task.attempt)):
            return
        scope = f"{run.workflow_id}.{step.id}"
        for rate in step.rate_limit:
            self._check_granted(LimitName(LimitKind.RATE, rate.scope or scope, _key(rate, run)), str(one))
        for limit in step.concurrency:
            name = LimitName(LimitKind.EXECUTIONS, limit.scope or scope, _key(limit, run))
            self._check_granted(name, str(one))
            if step.type != "planner":  # its worker has done its work before its steps have
                out = {other for other in self._executions.get(name, ()) if self._is_out(other)} | {one}
                self._executions[name] = out
                _check_room(name, limit.limit, sorted(map(str, out)), run.run_id)

    def changed(self, run: Run) -> None:
        """A run has changed: it goes on only if it has its slots."""
        for name, limit in self._limits_of(run):
            going_on = self._going_on.setdefault(name, set())
            going_on.discard(run.run_id)
            if run.status in NOT_YET or run.ended or self._is_under(run, name):
                continue
            self._check_granted(name, f"{run.run_id}.{run.resumes}")
            going_on.add(run.run_id)
            _check_room(name, limit, sorted(going_on), run.run_id)

    def _check_granted(self, name: LimitName, holder: str) -> None:
        story = self._stories.get(name)
        if story is None or not any(one.partition("+")[0] == holder for one in story.granted):
            raise Broken(f"{holder} has begun without a slot of {name}", holder.partition(".")[0])

    def _limits_of(self, run: Run) -> Iterator[tuple[LimitName, int]]:
        for one in self._of[run.run_id].definition.concurrency:
            yield LimitName(LimitKind.RUNS, one.scope or run.workflow_id, _key(one, run)), one.limit

    def _is_under(self, run: Run, name: LimitName) -> bool:
        """Whether an ancestor has, or had, a slot of this limit."""
        if run.resumes or not isinstance(run.parent, ParentRef) or run.parent.detached:
            return False
        parent = self._runs[run.parent.run_id]
        return name in dict(self._limits_of(parent)) or self._is_under(parent, name)

    def _step(self, run: Run, step_id: str) -> Step | None:
        """The step of the definition; None for what follows from one, and for those of plans."""
        steps = {step.id: step for step in self._of[run.run_id].definition.steps}
        found = steps.get(step_id)
        return found or (steps.get(_whole(step_id)) if step_id.rpartition(".")[2].isdecimal() else None)

    def _is_out(self, one: Execution) -> bool:
        run = self._runs[one.run_id]
        step = run.find(one.step_id)
        if step is None or run.ended or step.status not in STEP_OUT:
            return False
        return (step.iteration, step.attempts) == (one.iteration, one.attempt)


def _whole(step_id: str) -> str:
    """The map, for an element of it."""
    whole, _, number = step_id.rpartition(".")
    return whole if number.isdecimal() else step_id


def _key(limit: ConcurrencyDef | RateDef, run: Run) -> str | None:
    assert limit.key in (None, TEAM)
    return None if limit.key is None else team_of(run.labels)


def _check_room(name: LimitName, most: int, out: list[str], run_id: str) -> None:
    if len(out) > most:
        raise Broken(f"limit {name.kind} {name.scope} {name.key or ''}: {out} go on, and {most} may", run_id)
