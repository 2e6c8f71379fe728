"""What people see while a load runs: a bar on a terminal, nothing anywhere else."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .counts import Counts

REFRESH_S = 0.25


@asynccontextmanager
async def shown(counts: Counts, quiet: bool) -> AsyncIterator[None]:
    """Show the counts on stderr during the block, if that is a terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    task = asyncio.create_task(_draw(counts))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _draw(counts: Counts) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False) as progress:
        bar = progress.add_task("runs", total=counts.expected)
        try:
            while True:
                progress.update(bar, completed=counts.ended.total(), description=_text(counts), refresh=True)
                await asyncio.sleep(REFRESH_S)
        finally:
            progress.update(bar, completed=counts.ended.total(), description=_text(counts), refresh=True)


def _text(counts: Counts) -> str:
    seconds = max(counts.now() - counts.begin, 1e-9)
    errors = f", {counts.errors.total()} errors" if counts.errors else ""
    return f"{counts.ended.total() / seconds:,.0f} runs/s, {counts.open:,} open{errors}"
