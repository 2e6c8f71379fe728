#!/usr/bin/env python3
"""Put load on a running service, and say how it bore it.

    scripts/loadtest.py --mode bulk --runs 20000       start them in requests of 1,000
    scripts/loadtest.py --mode rate --rate 200         start 200 runs a second, whatever the service does
    scripts/loadtest.py --mode closed --concurrency 16 16 users, each starts a run when its last one has ended

It registers a workflow of its own, a chain of steps, and brings a worker process (`--workers 0`: bring your own for the
task type loadtest.echo; it finds the broker as every worker does, by SERVICE_BROKER_URL). It ends by itself; Ctrl-C
shows what there is so far. Exit codes: 0 every run completed, 1 not all did, 2 wrong usage.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import suppress
from ipaddress import ip_address

import click
import msgspec
import uvloop
from load.chain import NAME, definition, workers
from load.client import Client, RefusedError, address
from load.connection import LostError
from load.counts import Counts, Result
from load.modes import MODES, Plan
from load.progress import shown
from load.report import lines
from load.watching import Poller

URL_DEFAULT = "http://127.0.0.1:8080"
WARM_S_MAX = 30.0


@click.command(help=__doc__.splitlines()[0] if __doc__ else None, context_settings={"show_default": True})
@click.option("--url", envvar="SERVICE_URL", default=URL_DEFAULT, show_envvar=True, help="Address of the service.")
@click.option("--token", envvar="SERVICE_API_TOKEN", show_envvar=True, help="Bearer token of the service.")
@click.option("--mode", type=click.Choice(list(MODES)), default="bulk")
@click.option("--runs", type=click.IntRange(1), help="How many at most; bulk: 10,000 if not given.")
@click.option("--rate", type=click.FloatRange(0.1, 100_000), default=100.0, help="rate: runs per second.")
@click.option("--concurrency", type=click.IntRange(1, 5000), default=16, help="closed: users.")
@click.option("--duration", type=click.FloatRange(0.1), default=10.0, help="No run is started after so many seconds.")
@click.option("--timeout", type=click.FloatRange(0.1), default=120.0, help="Seconds to wait for what is open then.")
@click.option("--steps", type=click.IntRange(1, 1000), default=3, help="Steps of the workflow.")
@click.option("--workers", "worker_count", type=click.IntRange(0, 64), default=1, help="Worker processes to start.")
@click.option(
    "--watch", type=click.Choice(["wait", "stream", "poll"]), default="wait", help="rate, closed: how ends are seen."
)
@click.option("--allow-remote", is_flag=True, help="Needed for a service that is not on this machine.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    url: str,
    token: str | None,
    steps: int,
    worker_count: int,
    timeout: float,
    allow_remote: bool,
    as_json: bool,
    **given: object,
) -> None:
    plan = _plan(given)
    _check(url, allow_remote)
    with workers(worker_count):
        result = uvloop.run(_load(url, token, plan, steps, timeout, as_json))
    click.echo(msgspec.json.encode(result).decode() if as_json else "\n".join(lines(result)))
    sys.exit(0 if result.complete and list(result.ended) == ["completed"] else 1)


def _plan(given: dict[str, object]) -> Plan:
    given["duration_s"] = given.pop("duration")
    if given["mode"] == "bulk" and given["runs"] is None:
        given["runs"] = 10_000
    return msgspec.convert(given, Plan)


def _check(url: str, allow_remote: bool) -> None:
    try:
        host, _ = address(url)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--url") from error
    if not (allow_remote or _is_here(host)):
        raise click.UsageError(f"{host} is not this machine: load on it needs --allow-remote")


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


async def _load(url: str, token: str | None, plan: Plan, steps: int, timeout_s: float, quiet: bool) -> Result:
    """The result, of what there is when it was interrupted."""
    client = Client(url, token)
    await _prepare(client, steps)
    counts = Counts(plan.runs)
    with suppress(asyncio.CancelledError, TimeoutError):
        async with shown(counts, quiet), asyncio.timeout(plan.duration_s + timeout_s):
            await _interruptible(MODES[plan.mode](client, plan, counts))
    client.close()
    return counts.result(plan.mode, steps)


async def _prepare(client: Client, steps: int) -> None:
    """Register the workflow, and see one run through: then the workers are there, and everything is warm."""
    try:
        await client.register(definition(steps))
        async with asyncio.timeout(WARM_S_MAX):
            await Poller(client).watch(await client.start(NAME, b"{}"))
    except (LostError, RefusedError) as error:
        raise click.ClickException(str(error)) from error
    except TimeoutError as error:
        raise click.ClickException(f"the first run did not end within {WARM_S_MAX:g} s: is there a worker?") from error


async def _interruptible(load: object) -> None:
    assert asyncio.iscoroutine(load)
    task = asyncio.ensure_future(load)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    await task


if __name__ == "__main__":
    main()
