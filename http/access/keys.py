"""/keys: the API keys. A key itself is in the answer that creates it, and nowhere else."""

from __future__ import annotations

import re

from falcon.asgi import Request, Response
from msgspec import Struct

from penstock.actors.control import keys
from penstock.client.access.views import CreatedKey, KeyView, RevokedKey
from penstock.config.limits import API_KEY_EXPIRES_S_MAX, DAY_S, NAME_CHARS_MAX
from penstock.engine.access.keys import StoredKey
from penstock.engine.access.scopes import KeyScope
from penstock.engine.definition import durations, forms, values
from penstock.engine.definition.identifiers import problem_with, quoted
from penstock.engine.definition.report import Report
from penstock.engine.errors import Invalid
from penstock.engine.times import rfc3339
from penstock.http.backend import Backend
from penstock.http.messages import bodies, fields, responses
from penstock.http.messages.callers import caller_of
from penstock.http.middleware.credentials import Credentials

PATTERN = r"[A-Za-z0-9_\-.*]+"
_PATTERN = re.compile(PATTERN)
_DAYS = re.compile(r"(?:([0-9]{1,4})d)?(.*)", re.DOTALL)


@forms.rule({"type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX, "pattern": f"^{PATTERN}$"})
def pattern(path: str, value: object, report: Report) -> object:
    """A pattern of workflow names: `*` stands for any characters."""
    assert isinstance(value, str)
    if not _PATTERN.fullmatch(value) or len(value) > NAME_CHARS_MAX:
        report.add(
            f"{path} {quoted(value)} must be a pattern such as order-*: 1 to {NAME_CHARS_MAX} of A-Z a-z 0-9 _ - . "
            "and *, which stands for any characters"
        )
    return value


@forms.rule({"type": "string", "minLength": 2, "pattern": f"^([0-9]{{1,4}}d)?({durations.PATTERN})?$"})
def lifetime(path: str, value: object, report: Report) -> object:
    """A duration, which may begin with days, in s."""
    assert isinstance(value, str)
    try:
        seconds = _seconds(value)
    except ValueError:
        report.add(f"{path} must be a duration such as 90d or 12h30m, not {quoted(value)}")
        return None
    if not 0 < seconds <= API_KEY_EXPIRES_S_MAX:
        report.add(f"{path} {quoted(value)} must be longer than 0s, and at most {API_KEY_EXPIRES_S_MAX // DAY_S} days")
    return seconds


NEW: fields.Fields = {
    "name": values.name,
    "scope": values.one_of(*KeyScope),
    "workflow": pattern.annotated(description="Which workflows it is for: a pattern, in which * is any characters."),
    "expires": lifetime.annotated(description="How long it is valid: 90d, 12h30m. Absent: until it is revoked."),
}


class CreateKey(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    scope: str
    workflow: str | None = None
    expires: str | None = None


class KeysResource:
    def __init__(self, backend: Backend, credentials: Credentials) -> None:
        self._backend, self._credentials = backend, credentials

    async def on_get(self, req: Request, resp: Response) -> None:
        """All keys, by name; never the keys themselves."""
        found = (await self._backend.store.api_keys.read()).keys
        responses.ok(resp, [_view(one) for one in found])

    async def on_post(self, req: Request, resp: Response) -> None:
        """Create a key; only this answer has it."""
        request = bodies.decode(await bodies.read(req), CreateKey)
        report = Report()
        read = fields.read_fields(request, NEW, report)
        fields.raise_problems(report)
        store, ring = self._backend.store, self._credentials.keys
        made = await keys.create(
            store,
            request.name,
            KeyScope(request.scope),
            workflow=request.workflow,
            expires_s=read.get("expires"),
            by=caller_of(req).name,
            has_token=self._credentials.has_token,
        )
        await ring.read(store.api_keys)
        view = _view(made.stored)
        responses.created(
            resp,
            CreatedKey(view.name, view.scope, made.key, view.created_at, view.workflow, view.expires_at, view.by),
        )


class KeyResource:
    def __init__(self, backend: Backend, credentials: Credentials) -> None:
        self._backend, self._credentials = backend, credentials

    async def on_delete(self, req: Request, resp: Response, name: str) -> None:
        """Revoke a key; every process of the service refuses it within a second."""
        if problem := problem_with("key name", name):
            raise Invalid(problem)
        store = self._backend.store
        await keys.revoke(store, name, has_token=self._credentials.has_token)
        await self._credentials.keys.read(store.api_keys)
        responses.ok(resp, RevokedKey(name))


def _view(stored: StoredKey) -> KeyView:
    expires_at = None if stored.expires_at is None else rfc3339(stored.expires_at)
    return KeyView(stored.name, stored.scope, rfc3339(stored.created_at), stored.workflow, expires_at, stored.by)


def _seconds(text: str) -> float:
    found = _DAYS.fullmatch(text)
    assert found is not None
    days, rest = found.groups()
    if not days and not rest:
        raise ValueError(text)
    return int(days or 0) * DAY_S + (durations.parse(rest) if rest else 0)
