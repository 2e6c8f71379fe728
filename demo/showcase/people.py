"""Names and payloads of people who do not exist: what the runs of the showcase are given."""

from __future__ import annotations

import random
from typing import Any

from penstock.demo.showcase.shop import NOWHERE, SLOW_BANK

CUSTOMERS = (
    ("Ada Visser", "ada@visser.example"),
    ("Bram de Wit", "bram@dewit.example"),
    ("Chidi Okafor", "chidi@okafor.example"),
    ("Dalia Haddad", "dalia@haddad.example"),
    ("Emre Şahin", "emre@sahin.example"),
    ("Freya Lindqvist", "freya@lindqvist.example"),
    ("Grace O'Neill", "grace@oneill.example"),
    ("Hiro Tanaka", "hiro@tanaka.example"),
)
GOODS = (("teapot", 39.5), ("fountain pen", 24.0), ("bicycle bell", 12.9), ("reading lamp", 64.0), ("chess set", 88.0))
TOWNS = ("Utrecht", "Ghent", "Lyon", "Aarhus", "Porto", "Graz")
SHOPS = ("utrecht", "ghent", "web")
PULLS = (
    "Keep the basket after a reload",
    "Say what a parcel to the islands costs",
    "Make the pictures of goods half as large",
    "Do not ask for a second name",
    "Let the search find plurals",
)
QUESTIONS = (
    ("How fast may a sluice gate open?", ["gates", "wear", "ice"]),
    ("Which bridges of the town need paint?", ["bridges", "rust"]),
    ("What do herons eat in a hard winter?", ["herons", "fish", "frost", "fields"]),
)


class People:
    """Makes inputs, one after the other. The same seed makes the same ones."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._orders, self._pulls, self._samples = 4100, 1017, 300

    def order(self, *, nowhere: bool = False, slow_bank: bool = False) -> dict[str, Any]:
        """An order; one to `nowhere` fails and is undone, the bank of one with a `slow_bank` needs three attempts."""
        self._orders += 1
        name, address = self._random.choice(CUSTOMERS)
        lines = [
            {"what": what, "price": price, "count": self._random.randrange(1, 4)}
            for what, price in self._random.sample(GOODS, self._random.randrange(1, 4))
        ]
        return {
            "order": f"O-{self._orders}",
            "customer": address,
            "lines": lines,
            "gift": self._random.random() < 0.3,
            "card": SLOW_BANK if slow_bank else "4111-FAST",
            "ship_to": {"name": name, "town": NOWHERE if nowhere else self._random.choice(TOWNS)},
        }

    def shop(self) -> dict[str, str]:
        """The labels of an order."""
        return {"shop": self._random.choice(SHOPS), "env": "production"}

    def push(self) -> dict[str, Any]:
        """What a host of code sends about a pull request."""
        self._pulls += 1
        return {"pull": self._pulls, "title": self._random.choice(PULLS), "by": self._random.choice(CUSTOMERS)[0]}

    def refund(self, service: str, *, large: bool) -> dict[str, Any]:
        """Money that a customer wants back; a `large` sum needs somebody who agrees."""
        return {
            "service": service,
            "customer": self._random.choice(CUSTOMERS)[1],
            "payment": f"pay_{self._random.getrandbits(32):08x}",
            "amount": 310.0 if large else 24.0,
            "currency": self._random.choice(["USD", "GBP", "CHF", "SEK"]),
        }

    def question(self) -> dict[str, Any]:
        """Something to research."""
        asked, topics = self._random.choice(QUESTIONS)
        return {"question": asked, "topics": topics}

    def sample(self) -> dict[str, Any]:
        """A tube with a number."""
        self._samples += 1
        return {"sample": f"S-{self._samples}", "from": self._random.choice(["canal", "harbour", "tap"])}

    def basket(self, wait: str) -> dict[str, Any]:
        """A basket whose owner has left."""
        return {"customer": self._random.choice(CUSTOMERS)[1], "wait": wait, "goods": self._random.randrange(1, 5)}

    def delivery_round(self, town: str) -> dict[str, Any]:
        """Parcels that a van brings round."""
        return {"town": town, "parcels": self._random.randrange(8, 40)}

    def notice(self) -> dict[str, str]:
        """When a parcel comes."""
        hour = self._random.randrange(9, 17)
        return {"customer": self._random.choice(CUSTOMERS)[1], "from": f"{hour}:00", "to": f"{hour + 2}:00"}

    def chance(self, share: float) -> bool:
        """True in so many cases of one."""
        return self._random.random() < share
