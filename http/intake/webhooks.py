"""/v1/webhooks/{name}: signed requests become events, and an event of a trigger's name starts a run.

The order of the checks limits what an unauthenticated client learns: whether the webhook exists, and nothing else.
"""

from __future__ import annotations

import time
from hashlib import sha256

from falcon.asgi import Request, Response
from msgspec import UNSET, Struct

from penstock.broker import names
from penstock.config.limits import WEBHOOK_BYTES_MAX
from penstock.config.process.crash_points import reached
from penstock.config.process.traces import caller_trace
from penstock.engine.definition.identifiers import problem_with, quoted
from penstock.engine.errors import Denied, Invalid, NotFound
from penstock.engine.trigger.signatures import SLACK, Signed, delivery_id, signed_by
from penstock.engine.trigger.trigger import Trigger
from penstock.http.backend import Backend
from penstock.http.messages import bodies, forms, responses

HEADER_CHARS_MAX = 512  # of a header that is kept


class Accepted(Struct, frozen=True):
    status: str = "accepted"


class Challenge(Struct, frozen=True):
    """The value that Slack expects in the response before it sends events."""

    challenge: str


class WebhookResource:
    def __init__(self, backend: Backend, default_secret: str | None) -> None:
        self._backend, self._default_secret = backend, default_secret

    async def on_post(self, req: Request, resp: Response, name: str) -> None:
        """Receive a signed webhook; it is stored before the response."""
        trigger = await self._wanted(name)
        body = await bodies.read(req, WEBHOOK_BYTES_MAX)
        signed = self._authenticate(req, trigger, body)
        document, value = forms.as_json(body, req.content_type)
        if challenge := _challenge(signed, value):
            responses.ok(resp, challenge)
            return
        await self._check_input(trigger, document)
        event_id = _event_id(name, delivery_id(signed, req.get_header, body, value))
        await self._backend.store.events.publish(
            names.webhook_subject(name), document, event_id, _kept_headers(req, signed), trace=caller_trace()
        )
        reached("webhook.stored")
        responses.accepted(resp, Accepted())

    async def _wanted(self, name: str) -> Trigger:
        if not name:
            raise Invalid("the webhook's name is missing")
        kept = None if problem_with("webhook", name) else (await self._backend.store.triggers.find(name)).kept
        if kept is None or kept.deleted or kept.trigger.webhook is None or not kept.trigger.enabled:
            raise NotFound(f"webhook {quoted(name)} does not exist")
        return kept.trigger

    def _authenticate(self, req: Request, trigger: Trigger, body: bytes) -> Signed:
        """Check the signature by the trigger's own secret, or by the default one without it. Spec: Authentication,
        webhook secret."""
        secret = trigger.secret or self._default_secret
        signed = None if secret is None else signed_by(secret, req.get_header, body, time.time())
        if signed is None:
            raise Denied("a valid signature is needed")
        return signed

    async def _check_input(self, trigger: Trigger, body: bytes) -> None:
        known = await self._backend.catalog.wanted(trigger.workflow)
        if trigger.batch is not None:  # its runs get arrays
            return
        if known.schema is not None and trigger.input is UNSET and (problems := known.schema.check(body, "input")):
            raise Invalid(*problems)


def _challenge(signed: Signed, value: object) -> Challenge | None:
    match value:
        case {"type": "url_verification", "challenge": str(text)} if signed.dialect is SLACK:
            return Challenge(text)
        case _:
            return None


def _event_id(name: str, given: str | None) -> str | None:
    """The sender's own id, by which a webhook that is sent again is the same event. As a hash: it may be of any length
    and kind."""
    return f"webhook.{name}.{sha256(given.encode('utf-8', 'replace')).hexdigest()[:32]}" if given else None


def _kept_headers(req: Request, signed: Signed) -> dict[str, str]:
    """Those of the signature's dialect, which the run will show."""
    found = ((name, req.get_header(name)) for name in signed.dialect.headers)
    return {name: value[:HEADER_CHARS_MAX] for name, value in found if value}
