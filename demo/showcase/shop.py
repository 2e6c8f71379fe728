"""The shop: its steps price, charge, pack and ship orders, count shelves, and pay money back.

By hand: python -m penstock.demo.showcase.shop
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

from penstock.worker import Context, NonRetriable, RetryAfter, Worker

SHELVES = ("A1", "A7", "B2", "B9", "C4", "D3")
RATES = {"USD": 0.92, "GBP": 1.17, "CHF": 1.04, "SEK": 0.087}
NOWHERE = "Atlantis"  # a parcel to this town finds no carrier
SLOW_BANK = "4000-SLOW"  # a card whose bank answers at the third attempt

worker = Worker(max_tasks=16, metadata={"demo": "shop", "site": "Utrecht"})


async def _takes(least_s: float, most_s: float) -> None:
    await asyncio.sleep(random.uniform(least_s, most_s))  # noqa: S311 - no secret


@worker.task("shop.price")
async def price(order: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Sum up the lines of an order."""
    await _takes(0.1, 0.3)
    total = sum(line["price"] * line["count"] for line in order["lines"])
    ctx.log.info("priced %d lines", len(order["lines"]), total=round(total, 2))
    return {"total": round(total, 2), "currency": "EUR", "gift": bool(order.get("gift"))}


@worker.task("shop.reserve")
async def reserve(priced: dict[str, Any]) -> dict[str, Any]:
    """Take the goods off a shelf."""
    await _takes(0.3, 0.9)
    return {"shelf": random.choice(SHELVES), "until": "18:00"}  # noqa: S311 - no secret


@worker.task("shop.put-back")
async def put_back(reserved: dict[str, Any]) -> dict[str, Any]:
    """Undo `reserve`."""
    await _takes(0.2, 0.5)
    return {"shelf": reserved["shelf"], "put_back": True}


@worker.task("shop.charge")
async def charge(payment: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Take the money from a card. Some banks are slow."""
    await _takes(0.4, 1.1)
    if payment.get("card") == SLOW_BANK and ctx.attempt < 3:
        ctx.log.warning("the bank has not answered", attempt=ctx.attempt)
        raise TimeoutError("the bank has not answered within 1 s")
    ctx.log.info("charged %s", payment["customer"], amount=payment["amount"])
    return {"payment": f"pay_{ctx.run_id[:8]}", "amount": payment["amount"]}


@worker.task("shop.pay-back")
async def pay_back(payment: dict[str, Any]) -> dict[str, Any]:
    """Undo `charge`, or a part of it."""
    await _takes(0.3, 0.8)
    return {"payment": payment["payment"], "paid_back": True}


@worker.task("shop.wrap")
async def wrap(order: dict[str, Any]) -> dict[str, str]:
    """Put paper around a present."""
    await _takes(0.6, 1.4)
    return {"paper": random.choice(["stars", "stripes", "plain"])}  # noqa: S311 - no secret


@worker.task("shop.ship")
async def ship(parcel: dict[str, Any], ctx: Context) -> dict[str, str]:
    """Hand the parcel to a carrier."""
    await _takes(0.3, 0.8)
    town = parcel["to"]["town"]
    if town == NOWHERE:
        raise NonRetriable(f"no carrier delivers to {town}: the address is under water")
    ctx.log.info("handed over in %s", town)
    return {"parcel": f"PX{random.randrange(10**8):08}", "carrier": "Bike & Barge"}  # noqa: S311 - no secret


@worker.task("shop.load")
async def load(trip: dict[str, Any], ctx: Context) -> dict[str, int]:
    """Put the parcels of a round into the van."""
    for done in range(1, 5):
        await _takes(0.3, 0.6)
        ctx.progress(done * trip["parcels"] // 4, trip["parcels"], "parcels")
    return {"parcels": trip["parcels"]}


@worker.task("shop.email")
async def email(message: dict[str, str]) -> dict[str, str]:
    """Write to a customer."""
    await _takes(0.1, 0.3)
    return {"sent_to": message["to"], "subject": message["subject"]}


@worker.task("shop.open-case")
async def open_case(failure: dict[str, Any]) -> dict[str, Any]:
    """Put a failed order before the people of the support."""
    await _takes(0.2, 0.4)
    return {"case": f"SUP-{random.randrange(1000, 9999)}", "why": failure["why"]}  # noqa: S311 - no secret


@worker.task("shop.look-at-basket")
async def look_at_basket(basket: dict[str, Any]) -> dict[str, bool]:
    """Whether something was bought meanwhile."""
    await _takes(0.1, 0.2)
    return {"bought": bool(basket.get("bought"))}


@worker.task("shop.list-shelves")
async def list_shelves() -> list[dict[str, str]]:
    """All shelves."""
    await _takes(0.1, 0.2)
    return [{"shelf": shelf} for shelf in SHELVES]


@worker.task("shop.scan")
async def scan(place: dict[str, str], ctx: Context) -> dict[str, int]:
    """Count a shelf by scanner, bin by bin."""
    for done in range(1, 6):
        await _takes(0.1, 0.25)
        ctx.progress(done, 5, "bins")
    return {"pieces": random.randrange(80, 120)}  # noqa: S311 - no secret


@worker.task("shop.weigh")
async def weigh(place: dict[str, str]) -> dict[str, int]:
    """Count a shelf by its weight."""
    await _takes(0.4, 0.8)
    return {"pieces": random.randrange(80, 120)}  # noqa: S311 - no secret


@worker.task("shop.compare")
async def compare(counts: dict[str, dict[str, int]]) -> dict[str, int]:
    """How far the two counts are apart."""
    await _takes(0.05, 0.15)
    scanned, weighed = counts["scan"]["pieces"], counts["weigh"]["pieces"]
    return {"pieces": scanned, "apart": abs(scanned - weighed)}


@worker.task("shop.reorder")
async def reorder(counts: list[dict[str, int]]) -> dict[str, int]:
    """Order what runs out."""
    await _takes(0.2, 0.5)
    return {"ordered": sum(count["pieces"] < 90 for count in counts)}


@worker.task("shop.rate")
async def rate(asked: dict[str, str | None]) -> dict[str, Any]:
    """Today's rate of a currency to the euro."""
    await _takes(0.02, 0.08)
    currency = asked.get("currency") or "USD"
    if currency not in RATES:
        raise RetryAfter(5, f"the bank has no rate of {currency} yet")
    return {"currency": currency, "rate": RATES[currency]}


@worker.task("shop.note")
async def note(value: Any) -> None:
    """Keep what was asked for, for the statistics."""
    await _takes(0.05, 0.1)


if __name__ == "__main__":
    worker.run()
