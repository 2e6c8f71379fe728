"""What an operator asks of runs: when, of which, and by which operation. Front carries it out (front.py); what follows
from it is told again by retold/."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson
from msgspec import Raw

from penstock.actors.control import pausing, rerunning, retry, step_operations
from penstock.actors.control.bulk import RetriedRuns
from penstock.actors.control.rerunning import RerunWish
from penstock.actors.control.run_operations import Begun
from penstock.broker.store import Store
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.run.state import STEP_DONE, Run, RunStatus, StepState, StepStatus
from tests.simulation import labelling
from tests.simulation.broken import Broken
from tests.simulation.retold.reruns import again
from tests.simulation.retold.told import followed

if TYPE_CHECKING:
    from tests.simulation.front import Said
    from tests.simulation.world import World

ASKED = {"pause run": 5, "resume run": 4, "pause runs": 1, "resume runs": 1, "skip step": 6, "retry step": 3}
ASKED |= {"rerun from": 4, "rerun runs": 1}
OF_SEEDS, SEED = 3, 2  # one of so many seeds has an operator: those with this remainder
COUNTS = (1, 2, 3, 5)
TWICE = ("skip step", "retry step", "rerun from", "rerun runs")  # by two at the same time, for every third number
CAN_GO_ON = (RunStatus.RUNNING, RunStatus.FAILED)
AT_ONCE_S = 1.0  # some orders come so soon after one another, or sooner


def moments(seed: int, until_s: float) -> list[tuple[float, str, int]]:
    """When an operator of this seed asks for something, for what, and a number that picks. Drawn apart from all else,
    so that all else in a seed stays as it is when there is more to ask for."""
    if seed % OF_SEEDS != SEED:
        return []
    chance, found, at = Random(f"operator {seed}"), list[tuple[float, str, int]](), 0.0
    for act in chance.choices(list(ASKED), list(ASKED.values()), k=chance.choice(COUNTS)):
        soon = found and chance.random() < 0.4
        at = at + chance.uniform(0, AT_ONCE_S) if soon else chance.uniform(0.1, chance.choice((4.0, until_s)))
        found.append((round(at % until_s, 3), act, chance.randrange(1000)))
    return found


# Of which runs it is asked; of any when there is none of these.
FITS: dict[str, Callable[[Run], bool]] = {
    "pause run": lambda run: not run.ended,
    "resume run": lambda run: run.pause is not None,
    "skip step": lambda run: run.status in CAN_GO_ON,
    "rerun from": lambda run: run.ended and run.compensation is None,
    "rerun runs": lambda run: run.ended,
    "retry step": lambda run: run.status is RunStatus.FAILED or any(map(_waits, run.steps.values())),
}


class Order(NamedTuple):
    """What is asked of which run, and of which step of it; of all runs with `all_ids`. `number` is of this order
    alone."""

    act: str
    run: Run
    step_id: str
    all_ids: Sequence[str]
    pick: int
    number: int

    @property
    def output(self) -> Raw:
        """What a step is completed with by hand."""
        return Raw(b'{"x":%d,"by":%d}' % (self.pick % 2, self.number))

    @property
    def key(self) -> str | None:
        """With which a rerun is asked for: the same for two who ask at the same time."""
        return f"{self.act} {self.pick}" if self.pick % 3 == 0 else None

    @property
    def outputs(self) -> dict[str, Raw]:
        """What a rerun is given in place of what the run has done: sometimes for one of the steps before."""
        done = [one for one, step in self.run.steps.items() if step.status in STEP_DONE and one != self.step_id]
        return {done[self.pick % len(done)]: Raw(b'{"x":1,"given":1}')} if done and self.pick % 4 == 1 else {}

    @property
    def labels(self) -> dict[str, str] | None:
        """Those that a rerun is to have; None: those of the run."""
        return labelling.renewed(self.pick) if self.act == "rerun from" else None

    @property
    def reruns(self) -> Sequence[str]:
        """Those of which a rerun is asked for."""
        return [self.run.run_id] if self.act == "rerun from" else self.all_ids if self.act == "rerun runs" else ()


def step_of(act: str, run: Run, pick: int) -> str:
    """The step that is asked for: often one with which the order makes sense."""
    own = [step_id for step_id, step in run.steps_and_items() if not step_id.endswith(".compensate")]
    fits = _waits if act == "retry step" else _is_open
    if act.startswith("rerun"):
        own, fits = [step_id for step_id in own if step_id in run.steps], _is_any
    fitting = [] if pick % 7 == 0 else [step_id for step_id in own if fits(run.step(step_id))]
    steps = fitting or own or [""]
    return steps[pick // 7 % len(steps)]


def wanted(store: Store, order: Order) -> Awaitable[Any]:
    """The operation; of many runs, and with children, for every other number."""
    children, run_id, run_ids = order.pick % 2 == 1, order.run.run_id, order.all_ids
    match order.act:
        case "rerun from":
            wish = RerunWish(order.step_id, outputs=order.outputs, labels=order.labels)
            return rerunning.rerun(store, run_id, wish, order.key)
        case "rerun runs":
            return _rerun_all(store, order)
        case "skip step":
            return step_operations.skip_step(store, run_id, order.step_id, order.output)
        case "retry step":
            return step_operations.retry_step(store, run_id, order.step_id)
        case "pause run":
            return pausing.pause(store, run_id, children=children)
        case "resume run":
            return pausing.unpause(store, run_id, children=children)
        case "pause runs":
            return pausing.pause_all(store, run_ids, children=children)
        case "resume runs":
            return pausing.unpause_all(store, run_ids, children=children)
        case _:
            raise AssertionError(order.act)


def is_invalid(order: Order, definition: WorkflowDef) -> bool:
    """Whether a rerun may be refused as Invalid: from what follows from another step, or with an output for such, or
    for a step that is carried out again. What depends on the steps of plans is another subject."""
    if order.act != "rerun from":
        return False
    given = order.outputs
    follows = any(followed(one) != one for one in (order.step_id, *given))
    return follows or bool(given and order.run.fragments) or bool(given.keys() & again(definition, order.step_id))


async def _rerun_all(store: Store, order: Order) -> RetriedRuns:
    """All runs of the workflow that have ended, from this step."""
    workflow, plan = order.run.workflow_id, retry.Plan(list(order.reruns))
    if order.key is not None:
        plan = await retry.keep(store, workflow, order.key, plan)
    again = retry.with_wish(store, RerunWish(order.step_id))
    return await retry.rerun(store, workflow, plan, again, dry_run=False, key=order.key)


def check(world: World, said: Said) -> None:
    """Raises Broken for an answer that is not true by the log."""
    match said.answer:
        case Run(run_id=run_id) if said.move.act == "pause run":
            _check_paused(world, [run_id])
        case pausing.OrderedRuns(done=done) if said.move.act == "pause runs":
            _check_paused(world, done)
        case Begun(run_id=run_id) if said.move.act == "rerun from" and run_id not in world.watch.runs:
            raise Broken("a rerun was lost", said.run_id)
        case RetriedRuns(retried=retried) if said.move.act == "rerun runs":
            if lost := [one for one in retried if str(one.new_run_id) not in world.watch.runs]:
                raise Broken("a rerun was lost", lost[0].original_run_id)
        case StepStatus() if said.order is not None:
            _check_completed(world, said.order)
        case step_operations.StepRetry(resumed=True) if not world.watch.runs[said.run_id].resumes:
            raise Broken("a run that was told as resumed never was", said.run_id)


def _check_paused(world: World, run_ids: Sequence[str]) -> None:
    for run_id in run_ids:
        if not world.watch.pauses[run_id].count:
            raise Broken("a run that was told as paused never was", run_id)


def _check_completed(world: World, order: Order) -> None:
    """Of several who complete a step by hand, one is told that it has."""
    output = world.watch.by_hand[order.run.run_id].outputs.get(order.step_id)
    if output != orjson.loads(bytes(order.output)):
        raise Broken(f"step {order.step_id} was completed by hand, and has another output: {output}", order.run.run_id)


def _waits(step: StepState) -> bool:
    return step.status is StepStatus.QUEUED and step.due is not None


def _is_open(step: StepState) -> bool:
    return step.status not in STEP_DONE


def _is_any(step: StepState) -> bool:
    return True
