"""Starting a run for a trigger: of the latest definition, with a checked input, one run for each trigger event."""

from __future__ import annotations

import time
from contextlib import suppress

from msgspec import Raw

from penstock.broker.store import Store
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.config.process.author import author
from penstock.engine.definition.definitions import WorkflowDef, run_limits
from penstock.engine.definition.schema import Schemas
from penstock.engine.errors import Conflict, Invalid, NotFound, TooLarge
from penstock.engine.run.event_payloads import LABELS_FORMAT, NULL, Started, TriggerRef
from penstock.engine.run.events import WorkflowStarted
from penstock.engine.times import rfc3339
from penstock.engine.trigger.labels import run_labels
from penstock.engine.trigger.trigger import Trigger


class Starter:
    """Starts runs for triggers."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._fires = store.meters.counter("penstock_trigger_fires_total")
        self._schemas = Schemas()

    async def start(
        self,
        trigger: Trigger,
        run_id: str,
        value: Raw,
        at: str,
        headers: dict[str, str] | None = None,
        event: Raw = NULL,
        trace: str | None = None,
    ) -> None:
        """Start the trigger's workflow under this id, unless that run exists. `at` is the time of the trigger event
        (RFC 3339), `headers` are those of a webhook, `event` is what came, `trace` the `traceparent` of its sender.

        Raises Invalid for labels that cannot be made of the event, for an input that breaks the workflow's schema and
        for a workflow that is not registered, TooLarge, and Unavailable (outcome unknown: start it again).
        """
        definition, digest = await self.checked(trigger, value)
        started = Started(
            workflow=definition.name,
            version=definition.version,
            digest=digest,
            input=value,
            trigger=TriggerRef(name=trigger.name, kind=trigger.kind, at=at, headers=headers or {}),
            labels=run_labels(trigger.labels, event),
            by=author(),
            waits=run_limits(definition),
        )
        needed = LABELS_FORMAT if started.labels else 1
        first = WorkflowStarted(
            run_id=run_id, timestamp=rfc3339(time.time()), trace_parent=trace, payload=started, v=needed
        )
        with suppress(Conflict):
            await self._store.history.append(first, expect_seq=0)
            self._fires.add(trigger.kind)

    async def checked(self, trigger: Trigger, value: Raw) -> tuple[WorkflowDef, str]:
        """The definition that a run of the trigger would have now, and its digest. Raises as `start`."""
        size = memoryview(value).nbytes
        if size > PAYLOAD_BYTES_MAX:
            raise TooLarge(f"the input has {size} bytes, {PAYLOAD_BYTES_MAX} is the most")
        definition, digest = await self.definition(trigger)
        schema = self._schemas.of(definition, digest)
        if schema is not None and (problems := schema.check(bytes(value), "input")):
            raise Invalid(*problems)
        return definition, digest

    async def definition(self, trigger: Trigger) -> tuple[WorkflowDef, str]:
        """The latest one of the trigger's workflow. Raises Invalid when there is none: the trigger is at fault."""
        try:
            return await self._store.definitions.latest(trigger.workflow)
        except NotFound as error:
            raise Invalid(str(error)) from error
