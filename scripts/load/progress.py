"""What people see while a load runs: a bar on a terminal, nothing anywhere else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .tally import Tally

REFRESH_S = 0.25


@asynccontextmanager
async def shown(tally: Tally, quiet: bool) -> AsyncIterator[None]:
    """Show the tally on stderr for the time of the block, if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    task = asyncio.create_task(_draw(tally))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _draw(tally: Tally) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as progress:
        bar = progress.add_task("runs", total=tally.expected)
        try:
            while True:
                progress.update(bar, completed=tally.ended.total(), description=_text(tally), refresh=True)
                await asyncio.sleep(REFRESH_S)
        finally:
            progress.update(bar, completed=tally.ended.total(), description=_text(tally), refresh=True)


def _text(tally: Tally) -> str:
    seconds = max(tally.now() - tally.begin, 1e-9)
    errors = f", {tally.errors.total()} errors" if tally.errors else ""
    return f"{tally.ended.total() / seconds:,.0f} runs/s, {tally.open:,} open{errors}"
