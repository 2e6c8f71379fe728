"""What goes on as long as somebody looks: a modest stream of orders, pushes, samples and questions."""

from __future__ import annotations

import hashlib
import hmac

import httpx2
import orjson

from penstock.client import Client
from penstock.demo.showcase.agenda import Agenda
from penstock.demo.showcase.filling import WEBHOOK
from penstock.demo.showcase.people import People
from penstock.engine.errors import Unavailable

APPROVALS_LEFT = 3  # those that wait longer are decided by somebody
APPROVING = ("site.code-review", "shop.refund")
CENTRIFUGE_S = 12.0
VANS = ("Utrecht", "Ghent", "Lyon")
ROUNDS_A_TOWN, NOTICES = 3, 8


class Trickle:
    """Owned by the command."""

    def __init__(self, client: Client, people: People, agenda: Agenda, service: str, secret: str) -> None:
        """`service` as in Opening; `secret` signs the webhook's requests."""
        self._client, self._people, self._agenda = client, people, agenda
        self._service, self._secret = service, secret.encode()
        self._town = 0

    def begin(self) -> None:
        """Enter all of it into the agenda."""
        for seconds, act in (
            (4, self._order),
            (12, self._push),
            (15, self._sample),
            (20, self._question),
            (25, self._refund),
            (30, self._approval),
            (35, self._basket),
            (40, self._rounds),
            (50, self._gallery),
            (60, self._notices),
            (65, self._newsletter),
        ):
            self._agenda.after(seconds, act)

    def _order(self) -> float:
        people = self._people
        order = people.order(nowhere=people.chance(0.08), slow_bank=people.chance(0.1))
        self._client.start("shop.order", orjson.dumps(order), labels=people.shop())
        return 8

    def _push(self) -> float:
        """A push, as a host of code reports it: by a signed webhook."""
        body = orjson.dumps(self._people.push())
        signature = hmac.new(self._secret, body, hashlib.sha256).hexdigest()
        try:
            httpx2.post(
                f"{self._service}/v1/webhooks/{WEBHOOK}",
                content=body,
                headers={"Content-Type": "application/json", "X-Signature-256": f"sha256={signature}"},
                trust_env=False,
            )
        except httpx2.TransportError as error:
            raise Unavailable(str(error)) from error
        return 45

    def _sample(self) -> float:
        """A sample, and the event that it waits for a little later."""
        sample = self._people.sample()
        self._client.start("lab.sample-analysis", orjson.dumps(sample), labels={"rack": "south"})
        self._agenda.after(CENTRIFUGE_S, lambda: self._centrifuge(sample))
        return 40

    def _centrifuge(self, sample: dict[str, object]) -> None:
        self._client.send_event("lab.centrifuge-done", orjson.dumps({**sample, "rounds": 12_000}))

    def _question(self) -> float:
        self._client.start("lab.research", orjson.dumps(self._people.question()))
        return 60

    def _refund(self) -> float:
        large = self._people.chance(0.3)
        self._client.start("shop.refund", orjson.dumps(self._people.refund(self._service, large=large)))
        return 50

    def _approval(self) -> float:
        """Decide the oldest approvals, so that there are always a few and never many."""
        waiting = [one for workflow in APPROVING for one in self._client.approvals(workflow=workflow)]
        for approval in sorted(waiting, key=lambda one: one.requested_at)[:-APPROVALS_LEFT]:
            action = "reject" if self._people.chance(0.2) else "approve"
            self._client.decide_by_right(approval.run_id, approval.step_id, action, approved_by="Ada Visser")
        return 30

    def _basket(self) -> float:
        self._client.start("shop.basket-reminder", orjson.dumps(self._people.basket("25s")))
        return 55

    def _rounds(self) -> float:
        """All rounds of a town at once: its van makes one after the other."""
        self._town += 1
        town = VANS[self._town % len(VANS)]
        for _ in range(ROUNDS_A_TOWN):
            body = orjson.dumps(self._people.delivery_round(town))
            self._client.start("shop.delivery-round", body, labels={"town": town})
        return 30

    def _notices(self) -> float:
        """More than the provider takes in a minute, and then none for longer."""
        for _ in range(NOTICES):
            self._client.start("shop.delivery-notice", orjson.dumps(self._people.notice()))
        return 100

    def _gallery(self) -> float:
        self._client.start("newsroom.gallery", b'{"album": "market-day", "photos": 48}', labels={"album": "market-day"})
        return 90

    def _newsletter(self) -> float:
        self._client.start("newsroom.newsletter", b'{"edition": "flash"}', labels={"edition": "flash"})
        return 120
