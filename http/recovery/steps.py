"""/runs/{run_id}/steps/{step_id}/retry and /skip: what an operator does about one step."""

from __future__ import annotations

from falcon.asgi import Request, Response
from msgspec import Raw, Struct, field

from penstock.actors.control.step_operations import retry_step, skip_step
from penstock.client.recovery.views import OverriddenStep, RetriedStep
from penstock.config.limits import BODY_BYTES_MAX
from penstock.engine.run.event_payloads import NULL
from penstock.http.backend import Backend
from penstock.http.messages import bodies, params, responses
from penstock.http.messages.callers import caller_of
from penstock.http.messages.errors import publishing


class SkipStep(Struct, frozen=True, forbid_unknown_fields=True):
    """The optional body; `output` is what the step is completed with, null without it."""

    output: Raw = field(default_factory=lambda: NULL)


class StepRetryResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, run_id: str, step_id: str) -> None:
        """Have a failed run go on at a step, or begin the step's next attempt now."""
        found, step = params.run_id(run_id), params.step_id(step_id)
        with publishing():
            done = await retry_step(self._backend.store, found, step)
        responses.ok(resp, RetriedStep(found, step, done.resumed, done.attempt or None))


class StepSkipResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, run_id: str, step_id: str) -> None:
        """Complete a step by hand, with an output."""
        found, step = params.run_id(run_id), params.step_id(step_id)
        body = await bodies.read(req, BODY_BYTES_MAX)
        request = bodies.decode(body, SkipStep) if body else SkipStep()
        bodies.check_payload("output", request.output)
        with publishing():
            status = await skip_step(self._backend.store, found, step, request.output, caller_of(req).name)
        responses.ok(resp, OverriddenStep(found, step, status))
