"""`TestTriggers`: the triggers of a service in memory, as tests use them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.testing.memory.engine import EngineInMemory
from penstock.testing.memory.waits import WaitsInMemory
from penstock.testing.run import TestRun
from penstock.testing.triggers.firing import FailedTrigger, TriggersInMemory
from penstock.worker.tasks.payloads import as_json

WITHOUT_PAYLOAD: Any = object()


class TestTriggers:
    """The triggers of one service in memory. Runs that they start are among the service's `runs`; those of cron
    triggers start as time passes."""

    __test__ = False  # pytest takes it for a class of tests

    def __init__(
        self,
        triggers: TriggersInMemory,
        waits: WaitsInMemory,
        engine: EngineInMemory,
        run: Callable[[str], TestRun],
    ) -> None:
        self._triggers, self._waits, self._engine, self._run = triggers, waits, engine, run

    def add(self, trigger: Mapping[str, Any]) -> None:
        """Create a trigger, or replace the one of this name: a dict as for `POST /triggers`. It begins now.

        Raises Invalid with every problem, Conflict for a route that is taken.
        """
        self._triggers.put(trigger)

    def remove(self, name: str) -> None:
        """Raises NotFound."""
        self._triggers.remove(name)

    def fire(self, name: str, payload: Any = WITHOUT_PAYLOAD) -> TestRun:
        """Start a run by hand, with this payload or with the trigger's own input. Raises NotFound, Invalid."""
        run_id = self._triggers.fire(name, None if payload is WITHOUT_PAYLOAD else as_json(payload))
        self._engine.settle()
        return self._run(run_id)

    def publish(self, subject: str, body: Any = None) -> None:
        """Publish to a subject of the broker: triggers on it start runs. `body` is whatever JSON can be made of; bytes
        are sent as they are."""
        self._triggers.publish(subject, body if isinstance(body, bytes) else as_json(body))
        self._engine.settle()

    def webhook(self, name: str, body: Any = None, headers: Mapping[str, str] | None = None) -> None:
        """Receive a webhook. Without `headers` it is signed with the trigger's secret; those that are given must hold a
        signature that is valid at the service's time.

        Raises NotFound, Denied for a signature that is not valid, Invalid for a body that is no input.
        """
        content = body if isinstance(body, bytes) else as_json(body)
        self._waits.send(self._triggers.webhook(name, content, headers), content)
        self._engine.settle()

    def request(
        self,
        path: str,
        body: Any = None,
        *,
        method: str = "POST",
        query: Mapping[str, Any] = {},
        headers: Mapping[str, str] = {},
        idempotency_key: str | None = None,
    ) -> TestRun:
        """Send a request to the route of an http trigger, and get the run that it starts; with a key, the same again.

        Raises NotFound for a route without a trigger, Invalid.
        """
        content = body if isinstance(body, bytes) else as_json(body)
        run_id = self._triggers.request(method, path, content, query, headers, idempotency_key)
        self._engine.settle()
        return self._run(run_id)

    def receive_event(self, name: str, body: bytes, event_id: str | None) -> None:
        """Take an event, whose body is JSON: see `TestService.send_event`."""
        self._waits.send(name, body)
        self._triggers.publish(f"event.{name}", body, event_id)
        self._engine.settle()

    @property
    def failed(self) -> list[FailedTrigger]:
        """What could start no run, oldest first: in the service, dead letters."""
        return list(self._triggers.failed)
