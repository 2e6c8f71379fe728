"""A bound on the bytes of tasks that a front-end process holds for its polls."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.broker.nats.pull import Delivery
from penstock.config.limits import TASKS_BYTES_MAX


class ByteBudget:
    """Owned by the bridge. A delivery counts from its arrival until it is assigned or given back.

    `on_room` is called when the total falls below TASKS_BYTES_MAX again. A response that a client reads slowly does not
    count: a few clients that read nothing would otherwise block everyone's tasks.
    """

    def __init__(self, on_room: Callable[[], None]) -> None:
        self._on_room = on_room
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether no more should be requested. What was already requested may still come."""
        return self._bytes >= TASKS_BYTES_MAX

    def take(self, delivery: Delivery) -> None:
        self._bytes += len(delivery.data)

    def let_go(self, deliveries: Iterable[Delivery]) -> None:
        was_full = self.full
        self._bytes -= sum(len(delivery.data) for delivery in deliveries)
        if was_full and not self.full:
            self._on_room()
