"""Removing ended runs while the storm goes on: who does it, and what must be so. The runs are those of bulks of their
own, whose runs nobody else touches: each bulk by its label."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from itertools import chain

import orjson

from .api import Api
from .evidence import Evidence, Violation
from .ledger import Ledger, Pruning
from .workflows import LOST, SHORT

LABEL, ENDED = "prune", ("completed", "failed", "cancelled")
GONE = "it is not there any more"  # why a run stays that somebody else has just removed
SIZE = (2, 12)
LOOK_S, LOOKS = 0.4, 60
TWICE, EARLY, RESUMED = 0.4, 0.3, 0.4


class Pruner:
    """Owned by the storm's users."""

    def __init__(self, api: Api, ledger: Ledger, dice: random.Random) -> None:
        self._api, self._ledger, self._dice = api, ledger, dice

    async def prune(self, number: int) -> None:
        """Start a bulk, and remove it when most of it has ended, or at once; often twice."""
        name = f"prune-{number}"
        wanted = self._ledger.prunings[name] = Pruning(self._dice.randint(*SIZE))
        if not await self._started(name, wanted):
            return
        if self._dice.random() >= EARLY:
            await self._ended(name)
        if self._dice.random() < RESUMED:
            await asyncio.gather(self._removed(name, wanted), self._resumed(name))
        for _ in range(2 if self._dice.random() < TWICE else 1):
            await self._removed(name, wanted)

    async def _started(self, name: str, wanted: Pruning) -> bool:
        inputs = [{"prune": name, "at": at} for at in range(wanted.size)]
        workflow = self._dice.choice((SHORT, LOST))
        body = orjson.dumps({"workflow_id": workflow, "inputs": inputs, "labels": {LABEL: name}})
        header = f"Idempotency-Key: {name}\r\n".encode()
        heard = await self._api.insist("POST", "/runs/bulk", body, header)
        if heard.status != 201:
            self._ledger.wonder(None, f"the bulk start {name} was answered {heard.text}")
            return False
        wanted.run_ids = heard.json()["run_ids"]
        return True

    async def _ended(self, name: str) -> None:
        """Return when all have ended, or some time is over: a worker may be away."""
        for _ in range(LOOKS):
            heard = await self._api.insist("GET", f"/runs?label={LABEL}:{name}&limit=100")
            if heard.status == 200 and all(run["status"] in ENDED for run in heard.json()):
                return
            await asyncio.sleep(LOOK_S)

    async def _resumed(self, name: str) -> None:
        """Those that have failed go on, while they are removed: one of both."""
        body = {"workflow_id": LOST, "mode": "replay", "labels": {LABEL: name}}
        heard = await self._api.insist("POST", "/runs/retry", orjson.dumps(body))
        if heard.status == 200:
            self._ledger.replayed.update(one["original_run_id"] for one in heard.json()["retried"])
        else:
            self._ledger.wonder(None, f"a bulk replay beside a removal was answered {heard.text}")

    async def _removed(self, name: str, wanted: Pruning) -> None:
        wanted.asked = True
        heard = await self._api.insist("POST", "/runs/prune", orjson.dumps({"labels": {LABEL: name}, "status": "all"}))
        if heard.status != 200:
            self._ledger.wonder(None, f"to prune {name} was answered {heard.text}")
            return
        answer = heard.json()
        wanted.pruned += answer["pruned"]
        wanted.doubted = wanted.doubted or heard.doubted  # then an earlier try may still be carried out
        wanted.skipped = [one["run_id"] for one in answer["skipped"] if one["reason"] != GONE]
        for run_id in answer["pruned"]:
            if (seen := await self._api.insist("GET", f"/runs/{run_id}")).status != 404:
                self._ledger.wonder(run_id, f"a read after its removal was acknowledged: {seen.text}")


def removed_runs_are_gone(evidence: Evidence) -> Iterator[Violation]:
    """A run whose removal was acknowledged is removed, and nothing of a removed run is found anywhere."""
    for run_id in chain.from_iterable(one.pruned for one in evidence.ledger.prunings.values()):
        if run_id not in evidence.removed:
            yield Violation("pruned", "its removal was acknowledged, and it is there", run_id)
    for run_id, places in evidence.removed.items():
        shown = [where for where, runs in evidence.shown.items() if run_id in runs]
        shown += [f"{name}:{value}" for (name, value), listed in evidence.labelled.items() if run_id in listed]
        if found := [*places, *shown]:
            yield Violation("pruned", f"it was removed, and is found: {found}", run_id)


def only_what_was_asked_for_is_removed(evidence: Evidence) -> Iterator[Violation]:
    """No other run is removed; and of a bulk that was to be removed, each run is there or removed. What was skipped by
    the last answer is there."""
    prunings = evidence.ledger.prunings.values()
    known = {run_id for one in prunings for run_id in one.run_ids or ()}
    unknown = sum(one.size for one in prunings if one.run_ids is None and one.asked)
    if len(others := evidence.removed.keys() - known) > unknown:
        yield Violation("removed", f"nobody has asked for the removal of {sorted(others)}")
    for one in prunings:
        for run_id in one.run_ids or ():
            if run_id not in evidence.histories and (run_id not in evidence.removed or not one.asked):
                yield Violation("removed", "its start was acknowledged, and nobody has removed it", run_id)
        for run_id in () if one.doubted else one.skipped:
            if run_id not in evidence.histories:
                yield Violation("removed", "it was said that it stays, and it is gone", run_id)
