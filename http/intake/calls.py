"""/workflows/{name}/call: start a run and answer with what it gives."""

from __future__ import annotations

from falcon.asgi import Request, Response
from msgspec import Raw

from penstock.actors.control.calls import CallAnswer, called
from penstock.client.views import CalledRun
from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.engine.errors import CallFailed, Invalid
from penstock.engine.run.event_payloads import NULL, TriggerRef
from penstock.http.backend import Backend
from penstock.http.catalog import Known
from penstock.http.messages import bodies, params, responses, run_filters


class CallResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, name: str) -> None:
        """Start a run with the body as its input, and wait for its answer."""
        workflow, key = params.workflow_name(name), params.idempotency_key(req)
        timeout_s, labels = run_filters.call_options(req)
        value = await _input(req)
        known = await self._backend.catalog.latest(workflow)
        await answer(self._backend, req, resp, known, value, timeout_s, key, labels=labels)


async def answer(
    backend: Backend,
    req: Request,
    resp: Response,
    known: Known,
    value: Raw,
    timeout_s: float,
    key: str | None,
    trigger: TriggerRef | None = None,
    labels: dict[str, str] | None = None,
) -> None:
    """Start a run of the workflow, and answer with what it gives, or that it goes on.

    Raises Invalid for an input that breaks the schema, CallFailed for a run that failed or was cancelled, Unavailable.
    """
    if known.schema is not None and (problems := known.schema.check(bytes(value), "input")):
        raise Invalid(*problems)
    async with called(backend.store, known.definition, known.digest, value, key, trigger, labels) as call:
        responses.set_run(resp, call.begun.run_id)
        responses.set_seq(resp, call.begun.seq)
        try:
            found = await call.answer(backend.waiters.limit_for(req, timeout_s))
        except CallFailed as error:
            responses.set_outcome(resp, error.status)
            raise
    _show(resp, call.begun.run_id, found)


def _show(resp: Response, run_id: str, found: CallAnswer) -> None:
    responses.set_outcome(resp, found.outcome)
    if found.reply is not None:
        responses.replied(resp, found.reply)
    elif found.output is not None:
        responses.ok_body(resp, found.output)
    else:
        responses.accepted(resp, CalledRun(run_id))


async def _input(req: Request) -> Raw:
    body = await bodies.read(req, PAYLOAD_BYTES_MAX)
    if not body:
        return NULL
    bodies.parse(body)
    return Raw(body)
