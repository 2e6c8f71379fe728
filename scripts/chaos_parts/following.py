"""What users do with runs that they have started: signal, decide, cancel, replay."""

from __future__ import annotations

import asyncio
import random
import secrets
from typing import Any

import orjson
from load.client import ENDED

from .api import Api, Heard
from .kind_workflows import CLAN, DESERTED, RECALLED, RESCUED, STRICT
from .ledger import Ledger, Verdict
from .limited_workflows import LIMITED
from .workflows import CONSENT, DOOMED, PARKED, SIGNAL, SIGNALLED

LOOK_S = 0.5
WAIT_MS = 3000
SIGNAL_AFTER_S = (0.0, 2.5)
CANCEL_AFTER_S = (0.0, 1.5)
REPLAYED = 0.7
APPROVED = 0.7
TOKEN_GONE = 401
TOKEN_USED = 409


class Following:
    """Owned by the users."""

    def __init__(self, api: Api, ledger: Ledger, dice: random.Random) -> None:
        self._api, self._ledger, self._dice = api, ledger, dice

    async def see_through(self, workflow: str, run_id: str) -> None:
        """What such a run needs from outside to go on."""
        match workflow:
            case _ if workflow == SIGNALLED:
                await self._signal(run_id)
            case _ if workflow == CONSENT:
                await self._decide(run_id)
            case _ if workflow in (DOOMED, STRICT, RESCUED, CLAN, DESERTED, LIMITED):
                await self._replay(run_id)

    async def cancel(self, run_id: str, compensate: bool = False) -> None:
        await asyncio.sleep(self._dice.uniform(*CANCEL_AFTER_S))
        body = orjson.dumps({"compensate": True}) if compensate else b""
        heard = await self._api.insist("POST", f"/runs/{run_id}/cancel", body)
        if heard.status == 200:
            self._ledger.cancelled.add(run_id)
        elif heard.status != 409:
            self._ledger.wonder(run_id, f"its cancellation was answered {heard.text}")

    async def cancel_parked(self) -> None:
        """Cancel every run that waits for nobody, of one workflow with compensation."""
        for workflow, more in ((PARKED, {}), (RECALLED, {"compensate": True})):
            body = {"workflow_id": workflow, "status": "running", **more}
            heard = await self._api.insist("POST", "/runs/cancel", orjson.dumps(body))
            if heard.status == 200:
                self._ledger.cancelled.update(heard.json()["cancelled"])
            else:
                self._ledger.wonder(None, f"a bulk cancellation was answered {heard.text}")

    async def replay_doomed(self) -> None:
        heard = await self._api.insist("POST", "/runs/retry", orjson.dumps({"workflow_id": DOOMED, "mode": "replay"}))
        if heard.status == 200:
            self._ledger.replayed.update(one["original_run_id"] for one in heard.json()["retried"])
        else:
            self._ledger.wonder(None, f"a bulk replay was answered {heard.text}")

    async def repeat_once(self, key: str, workflow: str) -> None:
        """Start every failed run of the workflow again as another run, unless that was done before."""
        body = {"workflow_id": workflow, "mode": "rerun", "once": True}
        header = f"Idempotency-Key: {key}\r\n".encode()
        heard = await self._api.insist("POST", "/runs/retry", orjson.dumps(body), header)
        if heard.status != 200:
            self._ledger.wonder(None, f"a bulk rerun was answered {heard.text}")
            return
        for one in heard.json()["retried"]:
            self._ledger.reruns.setdefault(one["original_run_id"], []).append(one["new_run_id"])

    async def _signal(self, run_id: str) -> None:
        await asyncio.sleep(self._dice.uniform(*SIGNAL_AFTER_S))
        payload = secrets.token_hex(8)
        heard = await self._api.insist("POST", f"/runs/{run_id}/signal/{SIGNAL}", orjson.dumps(payload))
        if heard.status == 200:
            self._ledger.signals[run_id] = payload
        else:
            self._ledger.wonder(run_id, f"its signal was answered {heard.text}")

    async def _decide(self, run_id: str) -> None:
        """Twice at once, perhaps once for and once against."""
        token = await self._token(run_id)
        if token is not None:
            await asyncio.gather(self._verdict(run_id, token), self._verdict(run_id, token))

    async def _token(self, run_id: str) -> str | None:
        """None when the run ended without asking."""
        while True:
            heard = await self._api.insist("GET", f"/runs/{run_id}/events")
            events = heard.json() if heard.status == 200 else []
            for event in events:
                if event["type"] == "approval.requested":
                    return str(event["payload"]["token"])
            if any(event["type"] in ("workflow.failed", "workflow.cancelled") for event in events):
                return None
            await asyncio.sleep(LOOK_S)

    async def _verdict(self, run_id: str, token: str) -> None:
        action = "approve" if self._dice.random() < APPROVED else "reject"
        heard = await self._api.insist("POST", f"/runs/{run_id}/approval/consent?action={action}&token={token}")
        if heard.status not in (200, TOKEN_GONE, TOKEN_USED):
            self._ledger.wonder(run_id, f"its decision was answered {heard.text}")
        self._ledger.verdicts.setdefault(run_id, []).append(Verdict(action, heard.status, heard.doubted))

    async def _replay(self, run_id: str) -> None:
        """Its dead letter is there before it is seen to fail."""
        if (await self._ended(run_id))["status"] != "failed" or self._dice.random() > REPLAYED:
            return
        found = await self._api.insist("GET", f"/dead-letters?run={run_id}")
        if found.status != 200 or not found.json():
            await self._replayed_by_others(run_id, found)
            return
        heard = await self._api.insist("POST", f"/dead-letters/{found.json()[0]['seq']}/replay")
        if heard.status == 200:
            self._ledger.replayed.add(run_id)
        elif heard.status not in (404, 409):  # somebody else was first, or our own first try was
            self._ledger.wonder(run_id, f"its replay was answered {heard.text}")

    async def _replayed_by_others(self, run_id: str, found: Heard) -> None:
        events = await self._api.insist("GET", f"/runs/{run_id}/events")
        if all(event["type"] != "workflow.resumed" for event in events.json()):
            self._ledger.wonder(run_id, f"it has failed, and has no dead letter: {found.text}")

    async def _ended(self, run_id: str) -> dict[str, Any]:
        while True:
            heard = await self._api.insist("GET", f"/runs/{run_id}?wait_ms={WAIT_MS}")
            if heard.status == 200:
                run: dict[str, Any] = heard.json()
                if run["status"] in ENDED:
                    return run
            await asyncio.sleep(LOOK_S / 5)
