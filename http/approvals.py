"""/runs/{run_id}/approval/{step_id}: a person's decision. The one-time token is all the authentication it needs."""

from __future__ import annotations

from falcon.asgi import Request, Response
from msgspec import Struct

from penstock.actors import approvals
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.events import Decision
from penstock.http import answers, bodies, params
from penstock.http.backend import Backend


class Opinion(Struct, frozen=True, forbid_unknown_fields=True):
    """The optional body."""

    comment: str | None = None
    approved_by: str | None = None


class Decided(Struct, frozen=True):
    """`status` is approved or rejected."""

    status: str
    run_id: str
    step: str


class Approval:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, run_id: str, step_id: str) -> None:
        """Approve or reject a step that waits for it."""
        step, asked = params.step_id(step_id), params.decision(req)
        run = params.run_id(run_id)
        body = await bodies.read(req, PAYLOAD_BYTES_MAX)
        opinion = bodies.decode(body, Opinion) if body else Opinion()
        decision = Decision(comment=opinion.comment, approved_by=opinion.approved_by)
        await approvals.decide(self._backend.store, run, step, asked.token, decision, granted=asked.granted)
        answers.ok(resp, Decided("approved" if asked.granted else "rejected", run, step))
