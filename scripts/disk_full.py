#!/usr/bin/env python3
"""Fill the disk of a service for a while, make room again, and measure how long it takes until a run can be started.

    scripts/disk_full.py                    a file system of 64 MiB in memory, full for 30 s (needs root, to mount it)
    scripts/disk_full.py --limit            without rights: files of the broker and its supervisor may grow no further
    meanwhile

Runs are started all the time, with answers counted. At the end every run that was acknowledged has to be there: else it
exits with 1.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import click
import httpx2
import uvloop
from load.service import Service, service

DEFINITION = b'{"name":"w","steps":[{"id":"a","task":"nobodys"}]}'
LIMIT_BYTES = 1 << 20
PIECES = (1 << 20, 1 << 12, 1)
INPUT = "x" * 20_000
BEAT_S = 0.05
START_S_MAX = 60.0


@click.command(help=__doc__.splitlines()[0] if __doc__ else None, context_settings={"show_default": True})
@click.option("--seconds", type=click.FloatRange(5), default=30.0, help="How long nothing can be written.")
@click.option("--size", type=click.IntRange(48), default=64, help="MiB of the file system.")
@click.option("--limit", is_flag=True, help="Limit the size of files in place of filling a file system.")
def main(seconds: float, size: int, limit: bool) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="penstock-disk-") as directory,
        nullcontext() if limit else _mounted(Path(directory), size),
    ):
        uvloop.run(_play(Path(directory), seconds, limit))


@contextmanager
def _mounted(directory: Path, size: int) -> Iterator[None]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "penstock", directory], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", directory], check=True)


async def _play(directory: Path, seconds: float, limit: bool) -> None:
    async with (
        service(directory, shards=1) as one,
        httpx2.AsyncClient(base_url=one.url, trust_env=False, timeout=START_S_MAX) as http,
    ):
        (await http.post("/workflows", content=DEFINITION)).raise_for_status()
        kept = [run_id for _ in range(50) if (run_id := await _start(http))]
        full = _limited(one) if limit else _filled(directory / "filler")
        begin = time.monotonic()
        with full:
            during, refused, health = await _during(http, begin + seconds)
        room = time.monotonic()
        while (first := await _start(http)) is None:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(BEAT_S)
        after_s = time.monotonic() - room
        kept += [*during, first]
        missing = [run_id for run_id in kept if (await http.get(f"/runs/{run_id}")).status_code != 200]
    print(f"without room {seconds:g} s: {len(during)} started, {refused} refused; /health said: {sorted(health)}")
    print(
        f"the first run was started {after_s:.2f} s after there was room; "
        f"of {len(kept)} acknowledged runs {len(missing)} are missing"
    )
    sys.exit(1 if missing else 0)


async def _during(http: httpx2.AsyncClient, until: float) -> tuple[list[str], int, set[str]]:
    """The runs that were started all the same, how many were refused, and what /health said."""
    started: list[str] = []
    refused, said = 0, set[str]()
    while time.monotonic() < until:
        run_id = await _start(http)
        if run_id is None:
            refused += 1
        else:
            started.append(run_id)
        with suppress(httpx2.TransportError):
            health = await http.get("/health")
            said.add(f"{health.status_code} {health.text.strip()}")
        await asyncio.sleep(BEAT_S)
    return started, refused, said


async def _start(http: httpx2.AsyncClient) -> str | None:
    """The id of a new run; None: it was refused."""
    with suppress(httpx2.TransportError):
        answer = await http.post("/runs", json={"workflow": "w", "input": INPUT})
        if answer.status_code == 201:
            return str(answer.json()["run_id"])
    return None


@contextmanager
def _filled(path: Path) -> Iterator[None]:
    """For the time of the block, not a byte more finds room."""
    with path.open("wb", buffering=0) as file:
        for size in PIECES:
            with suppress(OSError):
                while True:
                    file.write(b"x" * size)
        try:
            yield
        finally:
            path.unlink()


@contextmanager
def _limited(one: Service) -> Iterator[None]:
    pids = [*one.roles["broker"], *one.roles["serve"]]
    for pid in pids:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (LIMIT_BYTES, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        for pid in pids:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main()
