"""/dead-letters: what failed for good. List, show, replay, discard."""

from __future__ import annotations

import base64

import orjson
from falcon.asgi import Request, Response
from msgspec import UNSET, Raw, UnsetType, structs

from penstock.actors.control import run_operations
from penstock.broker.streams import dead_letters
from penstock.client.views import DeadLetterView, Discarded, Replayed
from penstock.engine.times import rfc3339
from penstock.http.access.belonging import Belonging
from penstock.http.backend import Backend
from penstock.http.messages import params, responses
from penstock.http.messages.callers import caller_of


class DeadLettersResource:
    def __init__(self, backend: Backend, belonging: Belonging) -> None:
        self._backend, self._belonging = backend, belonging

    async def on_get(self, req: Request, resp: Response) -> None:
        """Dead letters, newest first; a Link leads to the next page."""
        wanted = params.dead_letter_filter(req)
        page = await self._backend.store.dead_letters.page(wanted.run, wanted.task, wanted.limit, wanted.cursor)
        caller, letters = caller_of(req), page.dead_letters
        if caller.workflows is not None:
            letters = [letter for letter in letters if await self._belonging.sees_dead_letter(caller, letter)]
        responses.ok(resp, [_view(letter) for letter in letters])
        if page.next is not None:
            resp.set_header("Link", responses.link(req, str(page.next)))


class DeadLetterResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_get(self, req: Request, resp: Response, seq: str) -> None:
        """One dead letter with its payload."""
        payload_max = params.payload_max(req)
        letter, body = await self._backend.store.dead_letters.get(params.dead_letter_seq(seq))
        if payload_max is not None and len(body) > payload_max:
            responses.ok(resp, structs.replace(_view(letter), payload_bytes=len(body)))
        else:
            responses.ok(resp, _view(letter, body))

    async def on_delete(self, req: Request, resp: Response, seq: str) -> None:
        """Discard a dead letter, for good."""
        found = params.dead_letter_seq(seq)
        await self._backend.store.dead_letters.discard(found)
        responses.ok(resp, Discarded(found))


class DeadLetterReplayResource:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def on_post(self, req: Request, resp: Response, seq: str) -> None:
        """Resume the failed run of a dead letter at the step that failed."""
        responses.ok(
            resp, Replayed(await run_operations.replay_dead_letter(self._backend.store, params.dead_letter_seq(seq)))
        )


def _view(letter: dead_letters.DeadLetter, body: bytes | None = None) -> DeadLetterView:
    json, raw = (UNSET, None) if body is None else _payload(body)
    return DeadLetterView(
        letter.seq,
        letter.kind,
        rfc3339(letter.at),
        letter.error,
        letter.subject,
        letter.run_id,
        letter.step_id,
        letter.task,
        letter.attempts,
        letter.trigger,
        json,
        raw,
    )


def _payload(body: bytes) -> tuple[Raw | UnsetType, str | None]:
    """The payload as JSON, or else as base64."""
    try:
        orjson.loads(body)
        return Raw(body), None
    except orjson.JSONDecodeError:
        return UNSET, base64.b64encode(body).decode()
