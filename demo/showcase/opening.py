"""How the showcase begins: runs of every kind, so that each page of the console has something to show at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import orjson

from penstock.client import Client
from penstock.demo.showcase.agenda import Act, Agenda
from penstock.demo.showcase.people import People
from penstock.demo.showcase.site import LOCKED_PULL
from penstock.engine.run.state import RunStatus

ORDERS, PHOTOS, NOTICES = 24, 1000, 12
ROUNDS = ("Utrecht", "Utrecht", "Utrecht", "Ghent", "Ghent", "Lyon")
LOOK_AGAIN_S = 0.4
HERONS = {"question": "What do herons eat in a hard winter?", "topics": ["herons", "fish", "frost", "fields"]}
TEAM = {"team": "site", "by": "Freya Lindqvist"}


class Opening:
    """Owned by the command. Whatever has to wait for a run's progress goes to the agenda."""

    def __init__(self, client: Client, people: People, agenda: Agenda, service: str) -> None:
        """`service` is the address at which an http step reaches the service."""
        self._client, self._people, self._agenda, self._service = client, people, agenda, service

    def begin(self) -> None:
        """Start all of it."""
        self._orders()
        self._reviews()
        self._start("newsroom.gallery", {"album": "opera-night", "photos": PHOTOS}, {"album": "opera-night"})
        self._start("lab.research", HERONS, {"by": "Dalia Haddad"})
        self._limited()
        self._waiting()
        self._stopped()

    def _orders(self) -> None:
        people = self._people
        orders = [people.order(nowhere=n in (5, 17), slow_bank=n in (2, 9, 20)) for n in range(ORDERS)]
        labels = [people.shop() for _ in orders]
        self._client.bulk("shop.order", [orjson.dumps(order) for order in orders], run_labels=labels)
        self._client.send_event("shop.order-placed", orjson.dumps(people.order()))
        self._client.send_event("shop.order-placed", b'{"order": "O-4000", "customer": "a partner"}')  # a dead letter
        tomorrow = (datetime.now(UTC) + timedelta(days=1)).replace(hour=7, minute=0, second=0, microsecond=0)
        at = tomorrow.isoformat().replace("+00:00", "Z")
        self._client.start("shop.order", orjson.dumps(people.order()), run_at=at, labels=people.shop())

    def _reviews(self) -> None:
        locked = self._start("site.code-review", {**self._people.push(), "pull": LOCKED_PULL}, TEAM)
        self._agenda.after(1, self._agreed(locked, "agree", "Grace O'Neill"))
        self._agenda.after(1, self._repeated(locked, "publish"))
        agreed = self._start("site.code-review", self._people.push(), TEAM)
        self._agenda.after(1, self._agreed(agreed, "agree", "Bram de Wit"))
        self._start("site.code-review", self._people.push(), TEAM)

    def _limited(self) -> None:
        """More than limits let begin at once."""
        for town in ROUNDS:
            self._start("shop.delivery-round", self._people.delivery_round(town), {"town": town})
        for _ in range(NOTICES):
            self._start("shop.delivery-notice", self._people.notice())

    def _waiting(self) -> None:
        """What waits: for a person, a time, an event, a worker."""
        people = self._people
        self._start("shop.refund", people.refund(self._service, large=True))
        self._start("shop.refund", people.refund(self._service, large=False))
        self._start("shop.basket-reminder", people.basket("36h"))
        self._start("lab.sample-analysis", people.sample(), {"rack": "north"})
        self._start("lab.protein-folding", people.sample(), {"by": "Hiro Tanaka"})
        self._client.fire_trigger("shop-stock-count")

    def _stopped(self) -> None:
        """What somebody has stopped."""
        paused = self._start("newsroom.newsletter", {"edition": "evening"}, {"edition": "evening"})
        self._agenda.after(0, self._paused(paused))
        cancelled = self._start("lab.research", self._people.question(), {"by": "Emre Şahin"})
        self._agenda.after(2, self._cancelled(cancelled))

    def _start(self, workflow: str, value: Mapping[str, object], labels: Mapping[str, str] | None = None) -> str:
        return self._client.start(workflow, orjson.dumps(value), labels=labels).run_id

    def _agreed(self, run_id: str, step: str, person: str) -> Act:
        """Approve the step once it waits."""

        def act() -> float | None:
            run = self._client.get_run(run_id)
            if run.ended:
                return None
            if (found := run.steps.get(step)) is None or found.status != "running":
                return LOOK_AGAIN_S
            self._client.decide_by_right(run_id, step, "approve", approved_by=person, comment="looks good")
            return None

        return act

    def _repeated(self, run_id: str, step: str) -> Act:
        """Rerun a failed run from this step."""

        def act() -> float | None:
            run = self._client.get_run(run_id)
            if run.status == RunStatus.FAILED:
                self._client.rerun(run_id, step)
            return None if run.ended else LOOK_AGAIN_S

        return act

    def _paused(self, run_id: str) -> Act:
        """Pause a run once it has begun."""

        def act() -> float | None:
            run = self._client.get_run(run_id)
            if not run.ended and not any(step.status == "completed" for step in run.steps.values()):
                return LOOK_AGAIN_S
            if not run.ended:
                self._client.pause(run_id)
            return None

        return act

    def _cancelled(self, run_id: str) -> Act:
        def act() -> None:
            self._client.cancel(run_id, "the same was asked yesterday")

        return act
