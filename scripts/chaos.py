#!/usr/bin/env python3
"""Run the service under load, kill, freeze and restart its processes at random, and check what it promised.

    scripts/chaos.py                           10 minutes, seed 1
    scripts/chaos.py --seconds 60 --seed 7     a minute, with another plan
    scripts/chaos.py --plan --seed 7           only print what would be done, and when

It starts a service and workers of its own on free ports, with data in a temporary directory, and hits nothing but
these. The seed makes the plan; the timing is the machine's. Ctrl-C ends everything. Exit codes: 0 no violation, 1 some,
2 wrong usage.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import click
import msgspec
import uvloop
from chaos_parts.plan import plan
from chaos_parts.report import Report, lines
from chaos_parts.storm import BadStart, Wanted, storm

from penstock.config.log_setup import configure
from penstock.config.settings import LogSettings

VIOLATED = 1
SWALLOWED_S = 2.0


@click.command(help=__doc__.splitlines()[0] if __doc__ else None, context_settings={"show_default": True})
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=600.0,
    help="How long faults and load last; what follows takes a minute or two.",
)
@click.option("--seed", type=int, default=1, help="Makes the plan.")
@click.option("--every", type=click.FloatRange(0.2), default=2.4, help="Seconds from fault to fault.")
@click.option("--fewer", type=click.FloatRange(0.1), default=1.0, help="Stretches the pauses of the load.")
@click.option("--plan", "plan_only", is_flag=True, help="Print the plan and stop.")
@click.option("--keep", type=click.Path(path_type=Path, exists=False), help="Keep data and logs in this new directory.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def main(
    seconds: float, seed: int, every: float, fewer: float, plan_only: bool, keep: Path | None, as_json: bool
) -> None:
    faults = plan(seed, seconds, every)
    if plan_only or not as_json:
        click.echo(f"plan of seed {seed}: {len(faults)} faults in {seconds:g} s\n" + "\n".join(map(str, faults)))
    if plan_only:
        return
    configure(LogSettings(level="error"), "chaos")  # that its broker goes away now and then is no news here
    wanted = Wanted(seed, seconds, faults, fewer, keep)
    try:
        report = uvloop.run(_interruptible(wanted))
    except BadStart as error:
        raise click.ClickException(str(error)) from error
    except asyncio.CancelledError:
        raise click.Abort from None
    click.echo(msgspec.json.encode(report).decode() if as_json else "\n".join(lines(report)))
    sys.exit(0 if report.held else VIOLATED)


async def _interruptible(wanted: Wanted) -> Report:
    """SIGINT and SIGTERM end it as an error would: with nothing left running."""
    interrupted = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, interrupted.set)
    storming = asyncio.create_task(storm(wanted, lambda line: click.echo(line, err=True)))
    waiting = asyncio.create_task(interrupted.wait())
    await asyncio.wait([storming, waiting], return_when=asyncio.FIRST_COMPLETED)
    while not storming.done():  # a client that is just connecting may swallow a cancellation
        storming.cancel()
        await asyncio.wait([storming], timeout=SWALLOWED_S)
    waiting.cancel()
    return await storming


if __name__ == "__main__":
    main()
