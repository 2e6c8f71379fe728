"""How many bytes of tasks a front-end process has in hand for its pollers, and when that is too much."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.broker.nats.pull import Delivery
from penstock.config.limits import TASKS_BYTES_MAX


class ByteBudget:
    """Owned by the bridge. A delivery is in hand from when it comes until it has been handed out, or given back.

    `on_room` is called when there is room again. What a client then takes its time to read is no longer counted: else a
    few that read nothing would keep everybody's tasks away.
    """

    def __init__(self, on_room: Callable[[], None]) -> None:
        self._on_room = on_room
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Nothing more is to be asked for. What was asked for before may still come."""
        return self._bytes >= TASKS_BYTES_MAX

    def take(self, delivery: Delivery) -> None:
        self._bytes += len(delivery.data)

    def let_go(self, deliveries: Iterable[Delivery]) -> None:
        was_full = self.full
        self._bytes -= sum(len(delivery.data) for delivery in deliveries)
        if was_full and not self.full:
            self._on_room()
