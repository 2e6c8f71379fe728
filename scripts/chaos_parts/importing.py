"""Importing runs while the storm goes on: who does it, and what must be so. What is imported are runs of the storm
itself, as they are exported, under other ids; nobody touches an import."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any
from urllib.parse import quote

import orjson

from .api import Api
from .evidence import Evidence, Violation
from .ledger import Import, Ledger
from .workflows import CONSENT, SIGNALLED

# Their lists are read by nobody who changes what is in them, or starts it again.
IMPORTED = (SIGNALLED, CONSENT)
LABEL = ("imported", "yes")
RECENT, LISTED_MAX = 25, 10_000
TWICE = 0.4


class Importer:
    """Owned by the storm's users."""

    def __init__(self, api: Api, ledger: Ledger, dice: random.Random) -> None:
        self._api, self._ledger, self._dice = api, ledger, dice

    async def import_one(self, number: int) -> None:
        """Export a run that was started not long ago, and import it; often twice at the same time."""
        run_id = self._recent()
        heard = None if run_id is None else await self._api.insist("GET", f"/runs/{run_id}/export")
        if heard is None or heard.status != 200:
            return
        new = secrets.token_hex(16)
        wanted = self._ledger.imports[new] = Import(_as_import(heard.json(), new))
        await asyncio.gather(*(self._import(new, wanted) for _ in range(2 if self._dice.random() < TWICE else 1)))
        await self._read(new, wanted)

    async def _import(self, run_id: str, wanted: Import) -> None:
        wanted.asked += 1
        heard = await self._api.insist("POST", "/runs/import", orjson.dumps(wanted.document))
        wanted.doubted = wanted.doubted or heard.doubted
        if heard.status == 201:
            wanted.stored = True
        elif heard.status == 409:
            wanted.refused += 1
        else:
            self._ledger.wonder(run_id, f"its import was answered {heard.text}")

    async def _read(self, run_id: str, wanted: Import) -> None:
        """What was stored is there from then on, and cannot be changed."""
        if not wanted.stored:
            return
        for method, path, status in (("GET", f"/runs/{run_id}", 200), ("POST", f"/runs/{run_id}/cancel", 409)):
            if (heard := await self._api.insist(method, path)).status != status:
                self._ledger.wonder(run_id, f"it was imported, and {method} {path} was answered {heard.text}")

    def _recent(self) -> str | None:
        starts = (start for start in reversed(self._ledger.starts.values()) if start.workflow in IMPORTED)
        found = [*islice((start.answers[0] for start in starts if start.answers), RECENT)]
        return self._dice.choice(found) if found else None


def _as_import(exported: dict[str, Any], run_id: str) -> dict[str, Any]:
    """Under another id, with a label that says so and no other one."""
    events = [{**event, "run_id": run_id} for event in exported["events"]]
    for event in events:
        if event["type"] in ("workflow.started", "workflow.scheduled"):
            event["payload"] = {**event["payload"], "labels": dict((LABEL,))}
    return {**exported, "run_id": run_id, "events": events}


async def listed_imports(api: Api) -> list[str]:
    """Those that the API finds by their label."""
    heard = await api.insist("GET", f"/runs?label={quote(':'.join(LABEL))}&limit={LISTED_MAX}")
    return [run["run_id"] for run in heard.json()] if heard.status == 200 else [heard.text]


async def exported_imports(api: Api, run_ids: Iterator[str]) -> dict[str, Any]:
    """What the API gives of each."""
    heard = {run_id: await api.insist("GET", f"/runs/{run_id}/export") for run_id in run_ids}
    return {run_id: one.json() if one.status == 200 else one.text for run_id, one in heard.items()}


def imports_are_kept(evidence: Evidence) -> Iterator[Violation]:
    """What was imported is given back as it was, and the lists have it. Nothing else is imported, and nothing is
    refused that was not there."""
    asked: Mapping[str, Import] = evidence.ledger.imports
    for run_id, one in asked.items():
        if one.stored and run_id not in evidence.imports:
            yield Violation("imports", "its import was acknowledged, and it is not there", run_id)
        if one.refused == one.asked and not one.doubted and not evidence.restored:
            yield Violation("imports", "its import was refused, and there was no such run", run_id)
    for run_id, found in evidence.imports.items():
        if run_id not in asked:
            yield Violation("imports", "nobody has imported it", run_id)
        elif found != asked[run_id].document:
            yield Violation("imports", f"it was imported, and is {found}", run_id)
    if evidence.listed_imports is not None:
        for run_id in {*evidence.listed_imports} ^ evidence.imports.keys():
            yield Violation("imports", "an import and the lists of runs do not agree", run_id)
