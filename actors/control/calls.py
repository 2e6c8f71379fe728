"""Calling a workflow: a run is started, and whoever called waits for its answer.

The run's events are watched from before its start, so that its answer needs no read. A caller that leaves ends nothing.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

from msgspec import Raw, Struct

from penstock.actors.control import run_operations
from penstock.actors.control.run_operations import Begun
from penstock.actors.control.watch import Watched, may_answer
from penstock.actors.runs.outputs import Outputs
from penstock.broker.nats.direct import Stored
from penstock.broker.store import Store
from penstock.config.limits import OUTPUTS_SHOWN_BYTES_MAX
from penstock.engine.definition.definitions import WorkflowDef
from penstock.engine.errors import CallFailed
from penstock.engine.run.event_payloads import Reply, TriggerRef
from penstock.engine.run.execution.inputs import run_output
from penstock.engine.run.payloads import size_of
from penstock.engine.run.state import RunStatus

RESPONDED = "responded"


class CallAnswer(Struct, frozen=True):
    """`outcome` is responded, with what a step of the run responds; or the status of the run: completed, with its
    output, or running when it has not answered in time."""

    outcome: str
    reply: Reply | None = None
    output: Raw | None = None


class PendingCall:
    """A run that was started for a caller. Owned by one request."""

    def __init__(self, store: Store, begun: Begun, coming: AsyncGenerator[Sequence[Stored]]) -> None:
        self.begun = begun
        self._store, self._coming = store, coming
        self._watched = Watched(store, begun.run_id)

    async def answer(self, limit: AbstractAsyncContextManager[object]) -> CallAnswer:
        """The answer of the run, or that it has not ended when the time limit is over.

        Raises CallFailed for a run that failed or was cancelled, Unavailable.
        """
        try:
            async with limit:
                found = await self._watched.first_answer(self._coming)
        except TimeoutError:
            return CallAnswer(RunStatus.RUNNING)
        if isinstance(found, Reply):
            return CallAnswer(RESPONDED, reply=found)
        return CallAnswer(RunStatus.COMPLETED, output=await self._output() if found is None else found)

    async def _output(self) -> Raw:
        run, workflow = self._watched.run, self._watched.workflow
        assert run is not None
        assert workflow is not None
        if run.status is not RunStatus.COMPLETED:
            raise CallFailed(run.error or f"run {run.run_id} was {run.status}", run.status)
        output = run_output(workflow, run)
        if (size := size_of(output)) > OUTPUTS_SHOWN_BYTES_MAX:
            raise CallFailed(
                f"run {run.run_id} has completed, but its output has {size} bytes and {OUTPUTS_SHOWN_BYTES_MAX} is the "
                f"most of an answer: read it from /runs/{run.run_id}/steps/<step>/output",
                run.status,
            )
        return await Outputs(self._store.history, run.run_id).whole(output, OUTPUTS_SHOWN_BYTES_MAX)


@asynccontextmanager
async def called(
    store: Store,
    definition: WorkflowDef,
    digest: str,
    value: Raw,
    key: str | None = None,
    trigger: TriggerRef | None = None,
    labels: dict[str, str] | None = None,
) -> AsyncIterator[PendingCall]:
    """A run that is started, and watched during the block. With a key, a second call is about the first run.

    Raises Unavailable (outcome unknown).
    """
    run_id, begun = run_operations.id_of_run(definition.name, key), list[Begun]()

    async def begin() -> bool:
        begun.append(await run_operations.begin(store, definition, digest, value, key, run_id, trigger, labels))
        return begun[0].is_new  # then no event of it was missed, and none has to be read

    async with aclosing(store.history.batches(run_id, may_answer, begin)) as coming:
        await anext(coming)  # it has begun
        yield PendingCall(store, begun[0], coming)
