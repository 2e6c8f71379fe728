"""Reruns of runs that have ended: new runs with their definition and input, which take over what does not depend on the
step that they begin from."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Raw, Struct, UnsetType

from penstock.actors.control import run_operations
from penstock.actors.control.run_operations import Begun, now
from penstock.actors.runs.commands.takeovers import expanded_again
from penstock.actors.runs.loading import load
from penstock.actors.runs.outputs import input_of
from penstock.broker.run_ids import keyed_run_id, new_run_id
from penstock.broker.store import Store
from penstock.config.process.author import author
from penstock.config.process.crash_points import reached
from penstock.config.process.traces import caller_trace
from penstock.engine.definition.definitions import WorkflowDef, run_limits
from penstock.engine.definition.identifiers import quoted
from penstock.engine.definition.schema import Schema
from penstock.engine.errors import Conflict, Invalid, NotFound
from penstock.engine.run.control.rerunning import differences, from_problem, output_problems, taken
from penstock.engine.run.event_payloads import Started, TakenStep, Taking
from penstock.engine.run.events import PlannerExpanded, StepTakenOver, WorkflowStarted
from penstock.engine.run.expansion import expanded
from penstock.engine.run.state import Run, StepStatus
from penstock.engine.run.workflow import Workflow

FORMAT = 2  # of events: versions that read format 1 only would begin with every step, or take them for malformed
NOTHING = Taking()


class Definition(Struct, frozen=True):
    """A definition of new runs; `schema` is that of its input, if it declares one."""

    definition: WorkflowDef
    digest: str
    schema: Schema | None


class RerunWish(Struct, frozen=True):
    """`from_step` and what depends on it is carried out again, everything without it. `outputs` are given to steps in
    place of those that would be taken over. `latest` is the definition to use instead of the run's own, `labels` are
    those of the new run instead of the run's."""

    from_step: str | None = None
    input: Raw | None = None
    outputs: Mapping[str, Raw] = {}
    latest: Definition | None = None
    labels: Mapping[str, str] | None = None


class NewRun(Struct, frozen=True):
    """The events that begin a run: its start, and the steps whose outputs are given, after the plans that they are
    in."""

    started: WorkflowStarted
    given: tuple[PlannerExpanded | StepTakenOver, ...] = ()


async def rerun(store: Store, run_id: str, wish: RerunWish, key: str | None = None) -> Begun:
    """Start a new run of a run that has ended. With a key, a second call returns the first run.

    Raises NotFound, Invalid for a wish that the run cannot fulfil, Conflict for a run that has not ended, and for what
    cannot be taken over; Unavailable (outcome unknown).
    """
    run = run_operations.found(await load(store, run_id), run_id)
    new_id = new_run_id() if key is None else _keyed(run, key)
    if key is not None and (seq := await run_operations.begun_before(store, new_id)):
        return Begun(new_id, seq=seq)
    new = await new_run(store, run, new_id, wish)
    seq = await _append(store, new)
    reached("run.rerun")
    return Begun(new_id, seq=seq)


async def new_run(store: Store, run: Run, new_id: str, wish: RerunWish) -> NewRun:
    """The events that begin a rerun of the run. Raises as `rerun`."""
    if not run.ended:
        raise Conflict(f"run {run.run_id} is {run.status}, only one that has ended can be rerun")
    takes = NOTHING
    if wish.from_step is not None:
        takes = _taken(await _workflow(store, run), run, wish.from_step, wish)
    if wish.latest is not None:
        await _check_latest(store, run, wish.from_step, wish.latest, takes)
    if takes != NOTHING:
        await _check_kept(store, run, takes)
    value = await _input(store, run, wish)
    found = wish.latest
    payload = Started(
        run.workflow_id,
        run.version if found is None else found.definition.version,
        run.digest if found is None else found.digest,
        value.copy(),  # many of these are kept until they are stored together; the value may be a part of a snapshot
        rerun_of=run.run_id,
        rerun_from=wish.from_step,
        takes=None if takes == NOTHING else takes,
        labels=(run.labels if wish.labels is None else dict(wish.labels)) or None,
        by=author(),
        waits=await _waits(store, run, found),
    )
    version = 1 if payload.takes is None and payload.labels is None else FORMAT
    started = WorkflowStarted(run_id=new_id, timestamp=now(), trace_parent=caller_trace(), payload=payload, v=version)
    return NewRun(started, (*_plans(new_id, run, wish.outputs), *_given(new_id, run, wish.outputs)))


def _keyed(run: Run, key: str) -> str:
    return keyed_run_id(run.workflow_id, f"{key}\n{run.run_id}")


async def _append(store: Store, new: NewRun) -> int:
    """Store the beginning of the run, if it has none yet. Returns the sequence of its first event."""
    history = store.history
    if new.given:
        await history.append_together([new.started, *new.given], 0)
        return await run_operations.begun_before(store, new.started.run_id)
    try:
        return await history.append(new.started, expect_seq=0)
    except Conflict:  # as in run_operations.begin
        return await run_operations.begun_before(store, new.started.run_id)


async def _workflow(store: Store, run: Run) -> Workflow:
    try:
        return expanded(await store.definitions.load(run.workflow_id, run.digest), run)
    except NotFound as error:
        raise Conflict(f"run {run.run_id} cannot be rerun, its definition is not in the store") from error


async def _waits(store: Store, run: Run, latest: Definition | None) -> int:
    """How many limits the new run waits for. A version of the definition is read once: compiled ones are kept."""
    if latest is not None:
        return run_limits(latest.definition)
    try:
        workflow = await store.definitions.load(run.workflow_id, run.digest)
    except NotFound:  # whoever carries out the run finds out, too
        return 0
    return 0 if workflow.slots is None else len(workflow.slots.limits)


def _taken(workflow: Workflow, run: Run, from_step: str, wish: RerunWish) -> Taking:
    """Raises Invalid for a step that is none, and for outputs of steps that are not taken over."""
    if problem := from_problem(workflow, run, from_step):
        raise Invalid(problem)
    if run.compensation is not None:
        raise Conflict(
            f"run {run.run_id} has undone its steps, so there is nothing to take over: rerun it without from"
        )
    takes = taken(workflow, run, from_step, wish.outputs)
    if problems := output_problems(workflow, run, takes, wish.outputs):
        raise Invalid(*problems)
    return takes


async def _check_latest(store: Store, run: Run, from_step: str | None, latest: Definition, takes: Taking) -> None:
    """Raises Invalid for a definition without the step, Conflict for one in which other steps are taken over."""
    if from_step is None:
        return
    mine = await store.definitions.exact(run.workflow_id, run.digest)
    ids = {step.id for step in latest.definition.steps}
    if from_step in {step.id for step in mine.steps} and from_step not in ids:
        raise Invalid(f"from: the latest definition of {quoted(run.workflow_id)} has no step {quoted(from_step)}")
    if found := differences(mine, latest.definition, takes):
        names = ", ".join(map(quoted, found))
        raise Conflict(f"the latest definition has other steps in place of {names}: these cannot be taken over")


async def _check_kept(store: Store, run: Run, takes: Taking) -> None:
    """Raises Conflict when the history does not have any more what the state leaves to it."""
    needed = [at.seq for step_id in takes.done if (at := run.steps[step_id].output_at) is not None]
    maps = (run.steps[step_id].items for step_id in (*takes.done, *takes.parts))
    needed += [one.begun + one.ended for items in maps if items is not None for _, one in items.numbered() if one.ended]
    if needed and await store.history.at(run.run_id, min(needed)) is None:
        raise Conflict(f"the history of run {run.run_id} does not have the outputs any more that would be taken over")


async def _input(store: Store, run: Run, wish: RerunWish) -> Raw:
    """Raises Invalid for an input that the schema refuses, Conflict when the run's own is gone."""
    try:
        value = wish.input if wish.input is not None else await input_of(store, run)
    except NotFound as error:
        raise Conflict(f"the input of run {run.run_id} is not there any more: give one") from error
    if wish.input is None and wish.latest is None:
        return value
    found = wish.latest or await _own(store, run)
    problems = found.schema.check(bytes(value), "input") if found.schema else []
    if problems:
        raise Invalid(*problems)
    return value


async def _own(store: Store, run: Run) -> Definition:
    definition = await store.definitions.exact(run.workflow_id, run.digest)
    schema = None if isinstance(definition.input_schema, UnsetType) else Schema(definition.input_schema)
    return Definition(definition, run.digest, schema)


def _plans(new_id: str, run: Run, outputs: Mapping[str, Raw]) -> list[PlannerExpanded]:
    """The plans that have these steps, an outer one before those in it: before its plan a step is not there."""
    return [
        expanded_again(new_id, run, planner)
        for planner in run.fragments
        if any(step_id.startswith(f"{planner}.") for step_id in outputs)
    ]


def _given(new_id: str, run: Run, outputs: Mapping[str, Raw]) -> list[StepTakenOver]:
    return [
        StepTakenOver(
            run_id=new_id,
            step_id=step_id,
            timestamp=now(),
            payload=TakenStep(
                StepStatus.COMPLETED,
                output,
                attempts=run.steps[step_id].attempts,
                started_at=run.steps[step_id].started_at,
                finished_at=run.steps[step_id].finished_at,
            ),
            v=FORMAT,
        )
        for step_id, output in outputs.items()
    ]
