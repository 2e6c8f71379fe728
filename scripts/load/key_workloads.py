"""What a key costs: the same read of a run of one service, in turns while it is open and while it needs a key. Sizes
are in environment.py, targets in targets.py."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

import httpx2

from penstock.engine.access.keys import StoredKey

from .chain import NAME
from .environment import Environment, Setup, environment
from .processes import cpu_s
from .samples import Sample, Workload

TURNS = 20
LOOK_S, KNOWN_S_MAX = 0.005, 20.0
UNAUTHORIZED = 401


class _Reader(NamedTuple):
    """A client of the service, on one connection, and so of one of its processes; and the run that it reads."""

    on: Environment
    http: httpx2.AsyncClient
    path: str
    keys: list[StoredKey]
    headers: Mapping[str, str]

    async def cpu_s(self, reads: int, *, with_key: bool) -> float:
        """The CPU that the processes of the service use for so many reads, once it needs a key, or none."""
        await self._change(self.keys if with_key else [])
        headers = self.headers if with_key else {}
        before = self._used_s()
        for _ in range(reads):
            (await self.http.get(self.path, headers=headers)).raise_for_status()
        return self._used_s() - before

    async def _change(self, keys: list[StoredKey]) -> None:
        """Return when the process that answers knows these keys. The store is changed: over HTTP the last key that may
        manage others cannot be revoked."""
        await self.on.store.api_keys.change(lambda _: keys)
        begin = time.perf_counter()
        while ((await self.http.get(self.path)).status_code == UNAUTHORIZED) != bool(keys):
            if time.perf_counter() - begin > KNOWN_S_MAX:
                raise RuntimeError("the service does not take notice of its keys")
            await asyncio.sleep(LOOK_S)

    def _used_s(self) -> float:
        return sum(map(cpu_s, self.on.service.roles.values()))


async def keys(setup: Setup) -> Sample:
    """Reads of one run in turns, without a key and with one: the median of how the two compare in a turn, which a
    stretch in which the machine was busy with something else does not move."""
    per_turn = max(1, setup.sizes.reads // TURNS)
    async with (
        environment(setup, alone=True) as on,
        httpx2.AsyncClient(base_url=on.service.url, trust_env=False, timeout=60) as http,
    ):
        reader = await _reader(on, http)
        for with_key in (False, True):
            await reader.cpu_s(per_turn, with_key=with_key)  # to warm up
        ratios, begin = list[float](), time.perf_counter()
        for turn in range(TURNS):
            order = (False, True) if turn % 2 else (True, False)
            used = {with_key: await reader.cpu_s(per_turn, with_key=with_key) for with_key in order}
            ratios.append(used[True] / used[False])
        per_s = 2 * TURNS * per_turn / (time.perf_counter() - begin)
    return Sample({"key-cpu": median(ratios), "key-reads": per_s})


async def _reader(on: Environment, http: httpx2.AsyncClient) -> _Reader:
    """The reader of a run that has ended, so that nothing happens to it meanwhile."""
    run_id = await on.client.start(NAME, b'{"n":1}')
    await on.client.status_at_end(run_id)
    made = (await http.post("/keys", json={"name": "bench", "scope": "admin"})).raise_for_status().json()
    stored = (await on.store.api_keys.read()).keys
    return _Reader(on, http, f"/runs/{run_id}", stored, {"Authorization": f"Bearer {made['key']}"})


KEY_WORKLOADS: Mapping[str, Workload] = {"keys": Workload(keys)}
