"""Doing what the plan says: one fault after the other, freezes, and a full store or disk, beside what follows."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Sequence

from .full_disk import fill_disk
from .installation import Installation
from .places import strike
from .plan import Deed, Fault
from .store_filler import fill

TARGET_S_MAX = 6.0
LOOK_S = 0.05
NUMBERS = {Deed.KILL: signal.SIGKILL, Deed.TERM: signal.SIGTERM, Deed.FREEZE: signal.SIGSTOP}


class Faults:
    """Owned by the storm. `done` counts what was really done, by deed and role; `missed` what found no process in
    time."""

    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self.done: Counter[tuple[Deed, str]] = Counter()
        self.missed = 0
        self._frozen: set[int] = set()

    async def run(self, faults: Sequence[Fault]) -> None:
        """Return when everything has been done, and nothing is frozen or full any more."""
        begin = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(max(0.0, begin + fault.at_s - time.monotonic()))
                if fault.deed is Deed.FILL:
                    group.create_task(self._fill(fault))
                    continue
                pid = await self._hit(fault)
                if fault.deed is Deed.FREEZE and pid is not None:
                    group.create_task(self._thaw(pid, fault.pause_s))

    async def _hit(self, fault: Fault) -> int | None:
        """The process that was hit. One that was killed a moment ago is waited for."""
        deadline = time.monotonic() + TARGET_S_MAX
        while time.monotonic() < deadline:
            pids = [pid for pid in self._installation.pids(fault.role) if pid not in self._frozen]
            if pids and strike(pid := pids[int(fault.pick * len(pids))], NUMBERS[fault.deed]):
                self.done[fault.deed, fault.role] += 1
                return pid
            await asyncio.sleep(LOOK_S)
        self.missed += 1
        return None

    async def _thaw(self, pid: int, pause_s: float) -> None:
        self._frozen.add(pid)
        try:
            await asyncio.sleep(pause_s)
        finally:
            strike(pid, signal.SIGCONT)
            self._frozen.discard(pid)

    async def _fill(self, fault: Fault) -> None:
        if await (
            fill(self._installation.broker_url, fault.pause_s)
            if fault.role == "store"
            else fill_disk(self._installation, fault.pause_s)
        ):
            self.done[fault.deed, fault.role] += 1
        else:
            self.missed += 1
