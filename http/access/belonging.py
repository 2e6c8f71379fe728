"""Which workflow a run, a trigger or a dead letter belongs to, for keys that are for some workflows only.

Nobody else pays for it: other callers are not asked. A run's workflow never changes, so it is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from penstock.actors.control import triggers
from penstock.actors.imports.reading import read
from penstock.broker.streams.dead_letters import DeadLetter
from penstock.engine.access.scopes import Caller
from penstock.engine.definition.identifiers import is_run_id, problem_with, quoted
from penstock.engine.errors import NotFound
from penstock.http.backend import Backend
from penstock.http.messages import params as reading
from penstock.http.middleware.rights import About

RUNS_REMEMBERED_MAX = 10_000
RUNS_IN_PATH = ("run_id", "other")


class Belonging:
    """Owned by the application."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._of_runs: dict[str, str] = {}

    async def check(self, caller: Caller, about: About, params: Mapping[str, str], what: str) -> None:
        """Raises OutOfScope or NotFound for what belongs to a workflow that the caller may not deal with, or to none;
        NotFound, Unavailable. `params` are those of the path."""
        match about:
            case About.NONE:
                caller.check_whole(what)
            case About.WORKFLOW:
                caller.check_workflow(params["name"])
            case About.RUN:
                for run_id in (params[name] for name in RUNS_IN_PATH if name in params):
                    await self._check_run(caller, run_id)
            case About.TRIGGER:
                await self._check_trigger(caller, params["name"])
            case About.DEAD_LETTER:
                await self._check_dead_letter(caller, params["seq"])
            case About.SEVERAL:
                pass
            case _:
                assert_never(about)

    async def sees_run(self, caller: Caller, run_id: str) -> bool:
        """Whether the caller may deal with a run; not with one that does not exist. Raises Unavailable."""
        try:
            return caller.sees(await self._of_run(run_id))
        except NotFound:
            return False

    async def sees_dead_letter(self, caller: Caller, letter: DeadLetter) -> bool:
        """As `sees_run`, for a dead letter: it belongs to the workflow of its run, or of its trigger."""
        if letter.run_id is not None:
            return await self.sees_run(caller, letter.run_id)
        if letter.trigger is None:
            return False
        try:
            return caller.sees((await triggers.get(self._backend.store, letter.trigger)).trigger.workflow)
        except NotFound:
            return False

    async def _check_run(self, caller: Caller, run_id: str) -> None:
        if not is_run_id(run_id) or not await self.sees_run(caller, run_id):
            raise NotFound(f"run {quoted(run_id)} does not exist")

    async def _check_trigger(self, caller: Caller, name: str) -> None:
        if problem_with("trigger", name) is None:
            stored = await triggers.get(self._backend.store, name)
            if caller.sees(stored.trigger.workflow):
                return
        raise NotFound(f"trigger {quoted(name)} does not exist")

    async def _check_dead_letter(self, caller: Caller, seq: str) -> None:
        letter, _ = await self._backend.store.dead_letters.get(reading.dead_letter_seq(seq))
        if not await self.sees_dead_letter(caller, letter):
            raise NotFound(f"dead letter {letter.seq} does not exist")

    async def _of_run(self, run_id: str) -> str:
        found = self._of_runs.get(run_id)
        if found is None:
            found = (await read(self._backend.store, run_id)).workflow_id
            if len(self._of_runs) >= RUNS_REMEMBERED_MAX:
                self._of_runs.clear()
            self._of_runs[run_id] = found
        return found
