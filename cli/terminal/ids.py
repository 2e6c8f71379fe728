"""Run ids as people give them: in full, or the first characters, when no other run has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.terminal import times
from penstock.cli.terminal.session import Session

if TYPE_CHECKING:
    from penstock.client.views import RunView

ID_CHARS = 32
PREFIX_CHARS_MIN = 8
CANDIDATES_MAX = 10
HEX = re.compile(r"[0-9a-f]+")


class RunId(click.ParamType[str]):
    """A run id in full, from an option or argument that may hold its beginning: the service is asked whose it is.

    Raises Conflict that names the runs when several have that beginning, NotFound when there is none. The service
    refuses what does not have the form of an id.
    """

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value).lower()
        if len(text) >= ID_CHARS or not HEX.fullmatch(text):
            return str(value) if len(text) != ID_CHARS else text
        if len(text) < PREFIX_CHARS_MIN:
            self.fail(
                f"{value!r} is too short: "
                f"give the run's id, or at least the first {PREFIX_CHARS_MIN} of its 32 characters",
                param,
                ctx,
            )
        session = ctx.find_object(Session) if ctx is not None else None
        if session is None or (ctx and ctx.resilient_parsing):
            return text
        return _only(text, list(session.client().runs(prefix=text, limit=CANDIDATES_MAX + 1)))


RUN_ID = click.argument("run_id", metavar="ID", type=RunId())


def _only(prefix: str, found: Sequence[RunView]) -> str:
    from penstock.engine.errors import Conflict, NotFound

    if not found:
        raise NotFound(f'no run has an id that begins with "{prefix}"')
    if len(found) > 1:
        raise Conflict("\n".join(_ambiguous(prefix, found)))
    return found[0].run_id


def _ambiguous(prefix: str, found: Sequence[RunView]) -> Iterator[str]:
    many = len(found) > CANDIDATES_MAX
    count = f"more than {CANDIDATES_MAX}" if many else len(found)
    yield f'{count} runs have an id that begins with "{prefix}", give more of it:'
    for run in found[:CANDIDATES_MAX]:
        yield f"  {run.run_id}  {run.workflow_id}  {run.status}  created {times.moment(run.created_at)}"
    if many:
        yield "  ..."
