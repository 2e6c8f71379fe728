"""What each operation needs: a scope, and a key that is for the workflow which it is about.

The rows are in the table of operations (openapi/operations); an operation without a row needs scope admin and a key for
all workflows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Any

from falcon.asgi import Request, Response
from msgspec import Struct

from penstock.engine.access.scopes import EVERYBODY, Caller, KeyScope
from penstock.http.messages.callers import caller_of


class About(StrEnum):
    """Which workflow an operation is about, for keys that are for some workflows only."""

    NONE = "none"  # such keys are refused
    WORKFLOW = "workflow"  # the path names it
    RUN = "run"  # that of the run, or the runs, which the path names
    TRIGGER = "trigger"  # that of the trigger which the path names
    DEAD_LETTER = "dead letter"  # that of the dead letter which the path names
    SEVERAL = "several"  # the responder itself filters what it lists, or checks what the body names


class Right(Struct, frozen=True):
    """What an operation needs; the default is the strictest."""

    scope: KeyScope = KeyScope.ADMIN
    about: About = About.NONE


STRICTEST = Right()
Rights = Mapping[tuple[str, str], Right]
CheckAbout = Callable[[Caller, About, Mapping[str, str], str], Awaitable[None]]


class RightsCheck:
    """Refuses what the caller's key does not allow, after routing and before anything else is looked at."""

    def __init__(self, rights: Rights, check_about: CheckAbout) -> None:
        """`rights` is by method and path template. `check_about` is asked about keys for some workflows only; it gets
        the caller, what the operation is about, the parameters of the path, and the operation's name."""
        self._rights, self._check_about = rights, check_about

    async def process_resource(self, req: Request, resp: Response, resource: object, params: dict[str, Any]) -> None:
        caller = caller_of(req)
        if caller is EVERYBODY or not hasattr(resource, f"on_{req.method.lower()}"):
            return
        right = self._rights.get((req.method, req.uri_template or ""), STRICTEST)
        what = f"{req.method} {req.uri_template}"
        caller.check_scope(right.scope, what)
        if caller.workflows is not None:
            await self._check_about(caller, right.about, params, what)
