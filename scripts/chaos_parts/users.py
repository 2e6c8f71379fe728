"""The load: users of every kind, each of whom insists on an answer and writes down what it was.

Nothing new begins once the load is stopped; what has begun is seen through, so that the ledger says what was promised.
"""

from __future__ import annotations

import asyncio
import hmac
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import orjson
from load.connection import LostError

from .api import Api
from .following import Following
from .importing import Importer
from .installation import WEBHOOK_SECRET
from .kind_workflows import (
    ANSWER,
    ASKING,
    ASLEEP,
    CALLED,
    CHOSEN,
    CLAN,
    DESERTED,
    FAMILY,
    FETCHED,
    GUARDIAN,
    LISTENING,
    MAPPED,
    NEWS,
    PARENT,
    PATRON,
    PLANNED,
    RECALLED,
    RESCUED,
    ROUTED,
    SCRAPPED,
    STRICT,
    UNDONE,
    UNPLANNED,
    WAITING,
)
from .ledger import Batch, CallAnswer, Ledger, SentEvent, Start
from .limited_workflows import LIMITED, STARTED
from .operators import Operators
from .pruning import Pruner
from .workflows import (
    AGENT,
    BRIEF,
    CHAIN,
    CONSENT,
    DIAMOND,
    DOOMED,
    HOOK,
    PARKED,
    ROUTE_PATH,
    SENT,
    SIGNALLED,
    STICKY,
    TIMED,
)

KEYED_EVERY_S, SCHEDULED_EVERY_S, BULK_EVERY_S, HOOK_EVERY_S, MANY_EVERY_S = 0.3, 1.0, 4.0, 1.0, 13.0
PRUNE_EVERY_S, IMPORT_EVERY_S, LIMITED_EVERY_S = 5.0, 3.0, 0.3
EVENT_EVERY_S, KIND_EVERY_S, CALL_EVERY_S, NEWS_EVERY_S, OPERATE_EVERY_S = 1.0, 0.6, 1.5, 3.0, 0.12
CALL_MS = 8000
ANSWERED = (200, 201, 202, 203, 502)  # by the run, or while it goes on, or by its failure
ANSWERS_MAX = 3
ANSWER_AFTER_S = (0.0, 3.0)
AT_ONCE_MAX = 150
BULK_SIZE = (5, 40)
AHEAD_S = (1.2, 5.0)
SECOND_TIME, UNSCHEDULED, CANCELLED, CALLED_OFF, PAUSED = 0.15, 0.2, 0.1, 0.4, 0.3
FLOWS = (CHAIN, CHAIN, DIAMOND, DIAMOND, AGENT, SIGNALLED, CONSENT, DOOMED, TIMED, PARKED, STICKY)
KINDS = (
    *(CHOSEN, ASLEEP, FETCHED, MAPPED, STRICT, PARENT, FAMILY, PATRON),
    *(WAITING, WAITING, ASKING, PLANNED, PLANNED, RESCUED, CLAN, DESERTED, LISTENING),
    *(UNDONE, UNDONE, GUARDIAN, UNPLANNED, UNPLANNED, SCRAPPED, RECALLED),
)
UNDOING = (UNDONE, GUARDIAN, UNPLANNED, PLANNED, SCRAPPED)
QUICK_FLOWS = (CHAIN, DIAMOND, STICKY, BRIEF)


class Users:
    """Owned by the storm. `fewer` stretches the pauses between requests, `target` is where http steps send theirs."""

    def __init__(self, api: Api, ledger: Ledger, seed: int, fewer: float, target: str) -> None:
        self._api, self._ledger, self._fewer, self._target = api, ledger, fewer, target
        self._dice = random.Random(f"users {seed}")
        self.following, self.operators = Following(api, ledger, self._dice), Operators(api, ledger, seed)
        self._pruner = Pruner(api, ledger, random.Random(f"pruner {seed}"))
        self._importer = Importer(api, ledger, random.Random(f"importer {seed}"))
        self._stopped, self._repeating = asyncio.Event(), asyncio.Lock()
        self._gate = asyncio.Semaphore(AT_ONCE_MAX)

    def stop(self) -> None:
        self._stopped.set()

    async def run(self) -> None:
        """Ask and ask until `stop`, then see to the end of what has begun."""
        kinds: list[tuple[float, Callable[[int], Awaitable[None]]]] = [
            (KEYED_EVERY_S, self._single),
            (SCHEDULED_EVERY_S, self._scheduled),
            (BULK_EVERY_S, self._bulk),
            (HOOK_EVERY_S, self._hook),
            (EVENT_EVERY_S, self._event),
            (MANY_EVERY_S, self._many),
            (KIND_EVERY_S, self._kind),
            (CALL_EVERY_S, self._call),
            (NEWS_EVERY_S, self._news),
            (OPERATE_EVERY_S, self.operators.operate),
            (PRUNE_EVERY_S, self._pruner.prune),
            (IMPORT_EVERY_S, self._importer.import_one),
            (LIMITED_EVERY_S, self._limited),
        ]
        async with asyncio.TaskGroup() as group:
            for every_s, user in kinds:
                group.create_task(self._pace(every_s * self._fewer, user, group))

    async def _pace(self, every_s: float, user: Callable[[int], Awaitable[None]], group: asyncio.TaskGroup) -> None:
        async for number in self._numbers(every_s):
            await self._gate.acquire()
            group.create_task(self._one(user, number))

    async def _numbers(self, every_s: float) -> AsyncIterator[int]:
        number = 0
        while not self._stopped.is_set():
            yield number
            number += 1
            try:
                async with asyncio.timeout(every_s * self._dice.uniform(0.5, 1.5)):
                    await self._stopped.wait()
            except TimeoutError:
                continue

    async def _one(self, user: Callable[[int], Awaitable[None]], number: int) -> None:
        try:
            await user(number)
        finally:
            self._gate.release()

    async def _single(self, number: int) -> None:
        workflow = self._dice.choice(FLOWS)
        run_id = await self._start(f"single-{number}", workflow)
        if run_id is None:
            return
        if self._dice.random() < CANCELLED and workflow not in (SIGNALLED, CONSENT):
            await self.following.cancel(run_id)
        else:
            await self.following.see_through(workflow, run_id)

    async def _start(self, key: str, workflow: str, run_at: datetime | None = None) -> str | None:
        start = Start(workflow, run_at=run_at.timestamp() if run_at else None, labels=self.operators.labels())
        self._ledger.starts[key] = start
        value = {"key": key, **({"url": self._target} if workflow == FETCHED else {})}
        body = {"workflow": workflow, "input": value, "labels": start.labels}
        body |= {"run_at": run_at.isoformat()} if run_at else {}
        for _ in range(2 if self._dice.random() < SECOND_TIME else 1):
            heard = await self._api.insist("POST", "/runs", orjson.dumps(body), f"Idempotency-Key: {key}\r\n".encode())
            if heard.status != 201:
                self._ledger.wonder(None, f"the start {key} was answered {heard.text}")
                return None
            start.answers.append(heard.json()["run_id"])
        run_id = start.answers[-1]
        if (seen := await self._api.insist("GET", f"/runs/{run_id}")).status != 200:
            self._ledger.wonder(run_id, f"a read after its start was acknowledged: {seen.text}")
        return run_id

    async def _scheduled(self, number: int) -> None:
        run_at = datetime.now(UTC) + timedelta(seconds=self._dice.uniform(*AHEAD_S))
        run_id = await self._start(f"scheduled-{number}", self._dice.choice(QUICK_FLOWS), run_at)
        if run_id is None or self._dice.random() >= UNSCHEDULED:
            if run_id is not None and self._dice.random() < PAUSED:
                await self.operators.pause(run_id)
            return
        heard = await self._api.insist("DELETE", f"/runs/{run_id}/scheduled")
        if heard.status == 200:
            self._ledger.unscheduled.add(run_id)
        elif heard.status != 400:
            self._ledger.wonder(run_id, f"unscheduling was answered {heard.text}")

    async def _kind(self, number: int) -> None:
        """A run with other steps than tasks, and the events that it may wait for: some are sent before it begins."""
        key, workflow = f"kind-{number}", self._dice.choice(KINDS)
        answers = self._dice.randint(0, ANSWERS_MAX) if workflow in (WAITING, ASKING, DESERTED) else 0
        early = self._dice.randint(0, answers)
        for at in range(early):
            await self._answer(key, at)
        run_id = await self._start(key, workflow)
        for at in range(early, answers):
            await asyncio.sleep(self._dice.uniform(*ANSWER_AFTER_S))
            await self._answer(key, at)
        if run_id is not None and self._dice.random() < CANCELLED:
            await self.following.cancel(run_id)
        elif (
            run_id is not None
            and workflow in (UNDONE, GUARDIAN, UNPLANNED, PLANNED, SCRAPPED)
            and self._dice.random() < CALLED_OFF
        ):
            await self.following.cancel(run_id, compensate=True)
        elif run_id is not None:
            await self.following.see_through(workflow, run_id)

    async def _limited(self, number: int) -> None:
        """A run that may have to wait, or makes way for others."""
        workflow = self._dice.choice(STARTED)
        run_id = await self._start(f"limited-{number}", workflow)
        if run_id is not None and self._dice.random() < CANCELLED:
            await self.following.cancel(run_id)
        elif run_id is not None and workflow == LIMITED:
            await self.following.see_through(workflow, run_id)

    async def _answer(self, key: str, number: int) -> None:
        """An event that a run of this key waits for, sent again now and then."""
        name = f"{key}-answer-{number}"
        await self._send(ANSWER, name, {"order": {"key": key}, "number": number, "name": name})

    async def _news(self, number: int) -> None:
        """An event that all runs wait for that are there."""
        await self._send(NEWS, f"news-{number}", {"news": number})

    async def _send(self, event: str, name: str, body: dict[str, Any]) -> None:
        sent = self._ledger.sent[name] = SentEvent(event, body)
        header = f"Idempotency-Key: {name}\r\n".encode()
        for _ in range(2 if self._dice.random() < SECOND_TIME else 1):
            heard = await self._api.insist("POST", f"/events/{event}", orjson.dumps(sent.body), header)
            if heard.status != 202:
                self._ledger.wonder(None, f"the event {name} was answered {heard.text}")
                return
            sent.seqs.append(heard.json()["seq"])

    async def _call(self, number: int) -> None:
        """Who calls gets an answer, and with the same key the same one: of the workflow itself, or by the route of a
        trigger."""
        key = f"call-{number}"
        routed = number % 2 == 1
        target = f"/v1/http/{ROUTE_PATH}" if routed else f"/workflows/{CALLED}/call?timeout_ms={CALL_MS}"
        start = self._ledger.starts[key] = Start(ROUTED if routed else CALLED)
        answers = self._ledger.calls[key] = []
        header = f"Idempotency-Key: {key}\r\n".encode()
        for _ in range(2 if self._dice.random() < SECOND_TIME else 1):
            heard = await self._api.insist("POST", target, orjson.dumps({"key": key}), header)
            run_id = heard.headers.get(b"location", b"").decode().rpartition("/")[2]
            if not run_id or heard.status not in ANSWERED:
                self._ledger.wonder(run_id or None, f"the call {key} was answered {heard.text}")
                return
            start.answers.append(run_id)
            answers.append(CallAnswer(run_id, heard.status, None if heard.status == 502 else heard.said))

    async def _bulk(self, number: int) -> None:
        await (self._keyed_bulk(number) if number % 2 else self._plain_bulk(number))

    async def _keyed_bulk(self, number: int) -> None:
        name, header = f"bulk-{number}", f"Idempotency-Key: bulk-{number}\r\n".encode()
        batch = self._ledger.batches[name] = Batch(self._dice.randint(*BULK_SIZE))
        inputs = [{"batch": name, "at": at} for at in range(batch.size)]
        body = orjson.dumps({"workflow_id": self._dice.choice(QUICK_FLOWS), "inputs": inputs})
        for _ in range(2 if self._dice.random() < SECOND_TIME else 1):
            heard = await self._api.insist("POST", "/runs/bulk", body, header)
            if heard.status != 201:
                self._ledger.wonder(None, f"the bulk start {name} was answered {heard.text}")
                return
            batch.run_ids = heard.json()["run_ids"]
            batch.answers.append(batch.run_ids)

    async def _plain_bulk(self, number: int) -> None:
        """Once only: nobody could tell a second try from the first."""
        name = f"bulk-{number}"
        batch = self._ledger.batches[name] = Batch(self._dice.randint(*BULK_SIZE))
        inputs = [{"batch": name, "at": at} for at in range(batch.size)]
        body = {"workflow_id": self._dice.choice(QUICK_FLOWS), "inputs": inputs}
        try:
            answer = await self._api.once("POST", "/runs/bulk", orjson.dumps(body))
        except LostError:
            return
        if answer.status == 201:
            batch.run_ids = orjson.loads(answer.body)["run_ids"]
        elif answer.status != 503:
            self._ledger.wonder(None, f"the bulk start {name} was answered {answer.status} {answer.body[:200]!r}")

    async def _hook(self, number: int) -> None:
        name = f"delivery-{number}"
        self._ledger.deliveries[name] = False
        body = orjson.dumps({"delivery": name})
        signature = hmac.new(WEBHOOK_SECRET.encode(), body, sha256).hexdigest()
        headers = f"X-Signature-256: sha256={signature}\r\nX-GitHub-Delivery: {name}\r\n".encode()
        heard = await self._api.insist("POST", f"/v1/webhooks/{HOOK}", body, headers)
        if heard.status != 202:
            self._ledger.wonder(None, f"the webhook {name} was answered {heard.text}")
            return
        self._ledger.deliveries[name] = True
        if self._dice.random() < SECOND_TIME:
            await self._api.insist("POST", f"/v1/webhooks/{HOOK}", body, headers)

    async def _event(self, number: int) -> None:
        name = f"event-{number}"
        seqs = self._ledger.events[name] = []
        body, header = orjson.dumps({"event": name}), f"Idempotency-Key: {name}\r\n".encode()
        for _ in range(2 if self._dice.random() < SECOND_TIME else 1):
            heard = await self._api.insist("POST", f"/events/{SENT}", body, header)
            if heard.status != 202:
                self._ledger.wonder(None, f"the event {name} was answered {heard.text}")
                return
            seqs.append(heard.json()["seq"])

    async def _many(self, number: int) -> None:
        """All parked runs are cancelled, all doomed ones replayed, all with a broken map or without an event repeated
        once, in one request each."""
        await self.following.cancel_parked()
        await self.following.replay_doomed()
        async with self._repeating:
            for workflow in (STRICT, ASKING):
                await self.following.repeat_once(f"many-{number}", workflow)
