"""/runs/{run_id}/approval/{step_id}: a person's decision, authenticated by the one-time token.

/approvals: the steps that wait for a decision, and the decision of an operator, who needs no token but access to the
control plane.
"""

from __future__ import annotations

from falcon.asgi import Request, Response
from msgspec import Struct, structs

from penstock.actors.control import approvals
from penstock.client.views import ApprovalView, DecidedApproval
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.run.event_payloads import Decision
from penstock.http.backend import Backend
from penstock.http.messages import bodies, params, responses
from penstock.http.messages.callers import caller_of


class Opinion(Struct, frozen=True, forbid_unknown_fields=True):
    """The optional body."""

    comment: str | None = None
    approved_by: str | None = None


class Choice(Struct, frozen=True, forbid_unknown_fields=True):
    """An operator's decision; `action` is approve or reject."""

    action: str
    comment: str | None = None
    approved_by: str | None = None


class ApprovalResource:
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
        responses.ok(resp, DecidedApproval("approved" if asked.granted else "rejected", run, step))


class ApprovalsResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response) -> None:
        """Steps that wait for a decision, of the oldest run first; a Link leads to the next page."""
        wanted = params.approval_filter(req)
        page = await approvals.waiting(
            self._backend.store, wanted.workflow, wanted.limit, wanted.cursor, caller_of(req).sees
        )
        responses.ok(resp, [ApprovalView(**structs.asdict(one)) for one in page.waiting])
        if page.next is not None:
            resp.set_header("Link", responses.link(req, page.next))


class OperatorApprovalResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, run_id: str, step_id: str) -> None:
        """Approve or reject a step that waits for it, as an operator."""
        step, run = params.step_id(step_id), params.run_id(run_id)
        choice = bodies.decode(await bodies.read(req, PAYLOAD_BYTES_MAX), Choice)
        granted = params.granted(choice.action)
        decision = Decision(comment=choice.comment, approved_by=choice.approved_by)
        await approvals.decide_by_right(self._backend.store, run, step, decision, granted=granted)
        responses.ok(resp, DecidedApproval("approved" if granted else "rejected", run, step))
