"""A backup that is made in the middle of the storm, and what it has: all that was acknowledged before it began."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

from load.service import SERVE, free_ports
from msgspec import Struct
from msgspec.structs import replace

from .executions import Execution
from .installation import STORE_BYTES_MAX, Installation, environ_with
from .ledger import Batch, ByHand, Import, Ledger, Pruning, Rerun, SentEvent, Start

AGAIN_S = 1.0
MADE_S_MAX, COMMAND_S_MAX = 240.0, 60.0


class Backup(Struct):
    """`promised` is the ledger as it was at `began`, in s since the epoch; `tries` is how often the service or its
    broker was taken away from the command."""

    directory: Path
    began: float
    promised: Ledger
    tries: int


async def take(installation: Installation, ledger: Ledger, directory: Path) -> Backup | None:
    """Make one, again and again until it is whole; None when that takes too long."""
    deadline, tries = time.monotonic() + MADE_S_MAX, 0
    while time.monotonic() < deadline:
        tries += 1
        target, began, promised = directory / f"backup-{tries}", time.time(), deepcopy(ledger)
        if await _command("backup", str(target), "--broker-url", installation.broker_url):
            return Backup(target, began, promised, tries)
        await asyncio.sleep(AGAIN_S)
    return None


async def restore(backup: Backup, data: Path) -> bool:
    """Into an empty data directory."""
    data.parent.mkdir(parents=True, exist_ok=True)
    options = {"data-dir": data, "broker-port": free_ports(1)[0], "max-store-bytes": STORE_BYTES_MAX}
    flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return await _command("restore", str(backup.directory), *flags)


def promises(backup: Backup, after: Ledger) -> Ledger:
    """What holds in the restored service: what was answered before the backup began. Of what was asked for later
    nobody knows whether it is there."""
    found = backup.promised
    return replace(
        found,
        starts={key: Start(one.workflow, run_at=one.run_at, labels=one.labels) for key, one in after.starts.items()}
        | found.starts,
        batches={key: Batch(one.size) for key, one in after.batches.items()} | found.batches,
        deliveries=dict.fromkeys(after.deliveries, False) | found.deliveries,
        events={key: [] for key in after.events} | found.events,
        sent={key: SentEvent(one.name, one.body) for key, one in after.sent.items()} | found.sent,
        keyed_reruns={key: Rerun(one.first, one.from_step, one.outputs) for key, one in after.keyed_reruns.items()}
        | found.keyed_reruns,
        by_hand=[ByHand(one.run_id, one.step_id, one.output) for one in after.by_hand] + found.by_hand,
        imports={key: Import(one.document, one.asked) for key, one in after.imports.items()} | found.imports,
        prunings={key: _begun(found.prunings.get(key), one) for key, one in after.prunings.items()},
        verdicts={run_id: said for run_id, said in found.verdicts.items() if any(one.status == 200 for one in said)},
        requests=list(after.requests),
        ticks=deepcopy(found.ticks),
        odd=[],
    )


def _begun(known: Pruning | None, after: Pruning) -> Pruning:
    """What was asked for since may be in the backup, or not."""
    if known is None:
        return Pruning(after.size, asked=after.asked)
    return replace(known, asked=after.asked, doubted=True)


def before(executions: list[Execution], backup: Backup) -> list[Execution]:
    """Those that had begun before the backup did: what they were ordered by is in it."""
    return [one for one in executions if one.at < backup.began]


async def _command(*arguments: str) -> bool:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVE, *arguments),
        env=environ_with({}),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(COMMAND_S_MAX):
            return await process.wait() == 0
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):  # it has just ended
                process.kill()
            await process.wait()
