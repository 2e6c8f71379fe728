"""Every run that the machine of test_advance_machine.py reaches, and that has not ended, says why it waits, whatever
is known of the world; only while a worker carries it out it may say nothing."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import settings
from hypothesis.stateful import invariant

from penstock.engine.run.state import Run, RunStatus
from penstock.engine.times import instant
from penstock.engine.waiting.awaited import EXPLAINED_MAX, Awaited, WaitingExecution, executions
from penstock.engine.waiting.explain import explain
from penstock.engine.waiting.facts import EngineProgress, LiveFacts, QueuedTask, QueueState, SignOfLife
from penstock.engine.waiting.reasons import Reason, WaitingReason
from tests.properties.test_advance_machine import World

OF_WORKERS = (Awaited.QUEUE, Awaited.WORKER, Awaited.ASIDE)


class ExplainedWorld(World):
    """The same world, in which people ask after each event why the run waits."""

    @invariant()
    def every_wait_has_a_reason(self) -> None:
        run = self.run
        if run is None:
            return
        workflow = self.whole() if run.status is not RunStatus.SCHEDULED else self.workflow
        waiting = executions(workflow, run)
        for facts, works in worlds(waiting, self.broker.now):
            found = explain(workflow, run, facts)
            assert bool(found) is not run.ended or (works and not run.ended), (facts, run.steps)
            assert len(waiting) <= EXPLAINED_MAX
            assert run.pause is None or run.ended or (Reason.PAUSED, None) == (found[0].reason, found[0].step_id)
            for one in found:
                self.is_sound(run, one)

    def is_sound(self, run: Run, one: WaitingReason) -> None:
        """A sentence on one line, about a step that there is, with times; and without the token of any approval."""
        assert one.step_id is None or run.find(one.step_id) is not None
        assert instant(one.since)
        assert one.until is None or instant(one.until)
        assert one.text.isprintable()
        assert "None" not in one.text
        for request in self.asked():
            assert request.payload.token not in one.text + str(one.details)


def worlds(waiting: list[WaitingExecution], now: float) -> Iterator[tuple[LiveFacts, bool]]:
    """What may be known of the world, and whether a worker may be carrying the run out then."""
    with_task = [one for one in waiting if one.awaits in OF_WORKERS]
    kinds = [one.kind for one in with_task]
    alive, gone = SignOfLife(now, silent=False, until=now + 60), SignOfLife()
    delivered = {one.id: QueuedTask(now) for one in with_task}
    behind = {one.id: QueuedTask(now - 5, place=7, exact=False) for one in with_task}
    served, busy = QueueState(1, 1, 0, asked=True), QueueState(1, 1, 1)
    signs = {one.id: alive for one in with_task}
    works = any(one.awaits in (Awaited.QUEUE, Awaited.WORKER) for one in with_task)
    yield LiveFacts(now, queues=dict.fromkeys(kinds, served), tasks=delivered, signs=signs), works
    yield LiveFacts(now, queues=dict.fromkeys(kinds, busy), tasks=behind, signs=signs), works
    nobody = dict.fromkeys(kinds, QueueState(elsewhere=1))
    yield LiveFacts(now, queues=nobody, tasks=behind, signs=dict.fromkeys(signs, gone)), False
    late = EngineProgress(3, events=7, seconds=2.5)
    yield LiveFacts(now, late, queues=dict.fromkeys(kinds, served), tasks=delivered, signs=signs), False
    yield LiveFacts(now, EngineProgress(owned=False), storage="it is full", changed_at=now), False
    yield LiveFacts(now), works


TestExplainedWorld = ExplainedWorld.TestCase
TestExplainedWorld.settings = settings(World.TestCase.settings, max_examples=40, stateful_step_count=30)
