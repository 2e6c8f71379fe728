"""What operators do with runs that are not theirs: pause them and let them go on, complete steps by hand, end the wait
for an attempt, and repeat ended runs from a step."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import orjson

from .api import Api
from .kind_workflows import (
    ASLEEP,
    CHOSEN,
    CLAN,
    DESERTED,
    FAMILY,
    MAPPED,
    PARENT,
    PATRON,
    PLANNED,
    RESCUED,
    SCRAPPED,
    STRICT,
    UNDONE,
    UNPLANNED,
    WAITING,
)
from .ledger import ByHand, Ledger, Rerun, Selected
from .limited_workflows import HOUSE, LIMITED, NARROW, RATED
from .operations import LABEL
from .workflows import AGENT, BRIEF, CHAIN, DIAMOND, DOOMED, STICKY, TIMED

TEAMS = ("red", "green", 'käse, "4:2" & 100 %')
RECENT, LISTED, LOOKS = 25, 30, 8
PAUSE_S = (0.2, 4.0)
WITH_CHILDREN, TWICE, WITH_OUTPUT, WHOLE = 0.5, 0.5, 0.3, 0.15
MANY_OF = (CHAIN, DIAMOND, MAPPED, PARENT, WAITING, PLANNED)
# Whose steps may be completed by hand or begin again: nobody waits for a certain output, and they end all the same.
OPERATED = (
    *(CHAIN, DIAMOND, AGENT, DOOMED, TIMED, STICKY, CHOSEN, ASLEEP, MAPPED, STRICT, PARENT, FAMILY, CLAN, DESERTED),
    *(PATRON, PLANNED, UNPLANNED, RESCUED, UNDONE, SCRAPPED, WAITING),
    *(LIMITED, NARROW, RATED, HOUSE),
)
REPEATED = (*OPERATED, BRIEF)
OPEN = ("pending", "queued", "running", "failed", "cancelled")


class Operators:
    """Owned by the users."""

    def __init__(self, api: Api, ledger: Ledger, seed: int) -> None:
        self._api, self._ledger = api, ledger
        self._dice = random.Random(f"operators {seed}")

    async def operate(self, number: int) -> None:
        """One of them does something once."""
        what = self._dice.choice((self._pause, self._pause_many, self._skip, self._skip, self._begin_now, self._rerun))
        await what(number)

    def labels(self) -> dict[str, str]:
        """Labels for a run that is about to be started; some have none."""
        team = self._dice.choice((*TEAMS, None))
        return {} if team is None else {"team": team}

    async def pause(self, run_id: str) -> None:
        """For a moment; it is paused twice now and then, and goes on in any case."""
        body = orjson.dumps({"children": True}) if self._dice.random() < WITH_CHILDREN else b""
        paused = await self._control(run_id, "pause", body)
        await asyncio.sleep(self._dice.uniform(*PAUSE_S))
        if paused:
            self._ledger.paused.add(run_id)
            if await self._control(run_id, "resume", body):
                self._ledger.resumed.add(run_id)

    async def end_pauses(self, run_ids: Sequence[str]) -> None:
        """Let these go on: who paused them may have missed some of them in its list."""
        for run_id in run_ids:
            await self._control(run_id, "resume", b"")

    async def _pause(self, number: int) -> None:
        if (found := self._recent()) is not None:
            await self.pause(found)

    async def _control(self, run_id: str, verb: str, body: bytes) -> bool:
        """False: it has ended."""
        heard = await self._api.insist("POST", f"/runs/{run_id}/{verb}", body)
        if heard.status not in (200, 409):
            self._ledger.wonder(run_id, f"{verb} was answered {heard.text}")
        return heard.status == 200

    async def _pause_many(self, number: int) -> None:
        """All of a workflow, perhaps of one team."""
        body: dict[str, Any] = {"workflow_id": self._dice.choice(MANY_OF)}
        if self._dice.random() < WITH_CHILDREN:
            body["labels"] = {"team": self._dice.choice(TEAMS)}
        paused = await self._select("pause", body, "paused")
        await asyncio.sleep(self._dice.uniform(*PAUSE_S))
        resumed = await self._select("resume", body, "resumed")
        self._ledger.paused.update(paused)
        self._ledger.resumed.update(run_id for run_id in resumed if run_id in paused)

    async def _select(self, verb: str, body: Mapping[str, Any], field: str) -> list[str]:
        heard = await self._api.insist("POST", f"/runs/{verb}", orjson.dumps(body))
        if heard.status != 200:
            self._ledger.wonder(None, f"{verb} of many was answered {heard.text}")
            return []
        found: list[str] = heard.json()[field]
        self._ledger.selected.append(Selected(body["workflow_id"], body.get("labels", {}), found))
        return found

    async def _skip(self, number: int) -> None:
        """Complete a step by hand that has not completed. It may complete, or its run may end, before that."""
        run_id, step_id = await self._open_step(OPEN)
        if run_id is None or step_id is None:
            return
        wanted = ByHand(run_id, step_id, self._output(step_id))
        self._ledger.by_hand.append(wanted)
        body = orjson.dumps({"output": wanted.output})
        heard = await self._api.insist("POST", f"/runs/{run_id}/steps/{step_id}/skip", body)
        wanted.done = heard.status == 200
        if heard.status not in (200, 409):
            self._ledger.wonder(run_id, f"to complete {step_id} by hand was answered {heard.text}")

    async def _begin_now(self, number: int) -> None:
        """The next attempt of a step that waits for it, or of one that has failed."""
        run_id, step_id = await self._open_step(("queued", "failed"))
        if run_id is None or step_id is None:
            return
        heard = await self._api.insist("POST", f"/runs/{run_id}/steps/{step_id}/retry")
        if heard.status == 200 and heard.json()["resumed"]:
            self._ledger.replayed.add(run_id)
        elif heard.status == 200:
            self._ledger.begun_now.append((run_id, step_id, heard.json()["attempt"]))
        elif heard.status != 409:
            self._ledger.wonder(run_id, f"to begin {step_id} now was answered {heard.text}")

    async def _rerun(self, number: int) -> None:
        """An ended run, from one of its steps or from the beginning, perhaps with other outputs; often twice."""
        workflow = self._dice.choice(REPEATED)
        listed = await self._api.insist("GET", f"/runs?workflow={workflow}&limit={LISTED}")
        ended = [run["run_id"] for run in listed.json() if run["status"] in ("completed", "failed", "cancelled")]
        view = await self._view(self._dice.choice(ended)) if ended else None
        if view is None:
            return
        from_step = None if self._dice.random() < WHOLE else self._step(view, None)
        wanted = Rerun(view["run_id"], from_step)
        if from_step is not None and self._dice.random() < WITH_OUTPUT:
            other = self._step(view, ("completed",))
            wanted.outputs = {} if other in (None, from_step) else {str(other): self._output(str(other))}
        key = f"rerun-{number}"
        self._ledger.keyed_reruns[key] = wanted
        for _ in range(2 if self._dice.random() < TWICE else 1):
            await self._repeat(key, wanted)

    async def _repeat(self, key: str, wanted: Rerun) -> None:
        body: dict[str, Any] = {"labels": {LABEL: key}}
        body |= {} if wanted.from_step is None else {"from": wanted.from_step}
        body |= {"outputs": wanted.outputs} if wanted.outputs else {}
        header = f"Idempotency-Key: {key}\r\n".encode()
        heard = await self._api.insist("POST", f"/runs/{wanted.first}/rerun", orjson.dumps(body), header)
        if heard.status == 201:
            wanted.answers.append(heard.json()["run_id"])
        elif heard.status != 409 and not (heard.status == 400 and wanted.outputs):
            self._ledger.wonder(wanted.first, f"its rerun {key} of {wanted} was answered {heard.text}")

    async def _view(self, run_id: str) -> dict[str, Any] | None:
        heard = await self._api.insist("GET", f"/runs/{run_id}")
        found: dict[str, Any] | None = heard.json() if heard.status == 200 else None
        return found

    async def _open_step(self, statuses: Sequence[str]) -> tuple[str | None, str | None]:
        """A run that was started not long ago, and one of its steps with one of these statuses."""
        for _ in range(LOOKS):
            run_id = self._recent(*OPERATED)
            view = None if run_id is None else await self._view(run_id)
            step_id = None if view is None else self._step(view, statuses)
            if step_id is not None:
                return run_id, step_id
        return None, None

    def _recent(self, *workflows: str) -> str | None:
        """A run that was started not long ago, of one of these workflows if some are named."""
        starts = ((key, start) for key, start in reversed(self._ledger.starts.items()) if start.answers)
        fit = (
            start.answers[0]
            for key, start in starts
            if key.startswith(("single-", "kind-", "limited-")) and (not workflows or start.workflow in workflows)
        )
        found = [*islice(fit, RECENT)]
        return self._dice.choice(found) if found else None

    def _step(self, view: Mapping[str, Any], statuses: Sequence[str] | None) -> str | None:
        """One of its steps, but of those that follow from the end of another one."""
        found = [
            step_id
            for step_id, step in view["steps"].items()
            if not step_id.endswith((".on_failure", ".compensate")) and (statuses is None or step["status"] in statuses)
        ]
        return self._dice.choice(found) if found else None

    def _output(self, step_id: str) -> Any:
        """What fits to the expressions that read it."""
        match step_id.rpartition(".")[2]:
            case "list":
                return [{"number": number, "by": secrets.token_hex(4)} for number in range(self._dice.randint(0, 3))]
            case "m":
                return []
            case "nap":
                return None
            case _:
                return {"by": secrets.token_hex(8), "even": self._dice.random() < WITH_CHILDREN}
