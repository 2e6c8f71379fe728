"""What a run answers to its caller."""

from __future__ import annotations

from typing import Any

from penstock.engine.run.event_payloads import Reply
from penstock.engine.run.state import Run
from tests.simulation.retold import templates
from tests.simulation.retold.told import Told, json


class Responses:
    """Those of one run. `answer` is the first one before the first end of the run: status and body."""

    def __init__(self, told: Told) -> None:
        self._told, self._closed = told, False
        self.answer: tuple[int, Any] | None = None

    def given(self, before: Run, step_id: str, reply: Reply) -> None:
        """A step responds. Raises Broken."""
        step = self._told.steps[step_id]
        config, scope = step.config or {}, self._told.scope(step)
        wanted = (templates.evaluated(config["status"], scope), templates.evaluated(config["body"], scope))
        body = json(reply.body)
        if (reply.status, body) != wanted:
            raise self._told.broken(f"{step_id} responds {reply.status} {body}, not {wanted}")
        if self.answer is None and not self._closed:
            self.answer = wanted
        self._told.succeeded(step_id, before.step(step_id).attempts, body)

    def closed(self) -> None:
        """The run has ended: its caller does not wait any more."""
        self._closed = True
