"""Who is no part of the service and no worker, and can publish all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw

from penstock.broker import message_ids, names
from penstock.broker.nats.headers import MSG_ID
from penstock.engine.run.events import ChildEnd, ChildEnded, Event, ParentRef, encode
from penstock.engine.times import rfc3339

if TYPE_CHECKING:
    from tests.simulation.world import World

FOREIGN_RUN = "f" * 32


class Strangers:
    def __init__(self, world: World) -> None:
        self._world = world

    def end_child(self, pick: int) -> None:
        """Say to a run that waits for a child that another run has ended."""
        runs = self._world.watch.runs.values()
        waiting = [run.parent for run in runs if isinstance(run.parent, ParentRef) and not run.ended]
        if waiting:
            parent = waiting[pick % len(waiting)]
            event = ChildEnded(
                run_id=parent.run_id,
                step_id=parent.step_id,
                timestamp=rfc3339(self._world.server.wall),
                attempt_number=parent.attempt,
                item=parent.item,
                payload=ChildEnd(FOREIGN_RUN, ("completed", "failed", "cancelled")[pick % 3], Raw(b'{"x":9}')),
            )
            self._world.server.when_up(self._publish, event)

    def _publish(self, event: Event) -> None:
        server = self._world.server
        server.publish(
            server.history, names.history_subject(event.run_id), encode(event), {MSG_ID: message_ids.of_event(event)}
        )
