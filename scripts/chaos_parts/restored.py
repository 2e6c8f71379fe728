"""The service out of the backup: everything in it comes to its end, and is checked by the same rules."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from penstock.broker.store import open_store
from penstock.config.settings import BrokerSettings

from .api import Api
from .backups import Backup, before, promises, restore
from .calm import LOOK_S, queued, reading, ready, stop_clock
from .checker import check
from .evidence import Violation
from .executions import Execution
from .following import Following
from .gathering import Gathering
from .installation import Installation
from .ledger import Ledger
from .operators import Operators
from .places import Places
from .step_account import Seen
from .workflows import SIGNALLED

WORKERS = 2
CALM_S_MAX = 180.0

Found = tuple[Sequence[Violation], dict[str, int], dict[str, list[Seen]]]


async def restored(backup: Backup, after: Ledger, executions: Sequence[Execution], directory: Path, seed: int) -> Found:
    """What is violated in it, how many runs it has by status, and the histories of those that are named."""
    if not await restore(backup, directory / "data"):
        return [Violation("restored", "the backup could not be restored")], {}, {}
    places, ledger = Places(), promises(backup, after)
    installation = Installation(directory, places, WORKERS, seed)
    keeping, api = asyncio.create_task(places.keep()), Api(installation.url)
    try:
        await ready(api, installation)
        return await _checked(installation, api, ledger, before(list(executions), backup), after, seed)
    finally:
        keeping.cancel()
        api.close()
        places.end()


async def _checked(
    installation: Installation, api: Api, ledger: Ledger, executions: list[Execution], after: Ledger, seed: int
) -> Found:
    async with open_store(BrokerSettings(url=installation.broker_url), "chaos") as store:
        gathering = Gathering(store)
        async with reading(gathering):
            with suppress(TimeoutError):
                async with asyncio.timeout(CALM_S_MAX):
                    await _calm(api, ledger, gathering, seed)
        ledger.requests = list(after.requests)
        evidence = await gathering.evidence(ledger, api, installation, restored=True)
        evidence.executions = [*executions, *evidence.executions]
    violations = check(evidence)
    named = {one.run_id for one in violations if one.run_id is not None} & evidence.histories.keys()
    runs = Counter(history.account.status or "not started" for history in evidence.histories.values())
    return (
        [replace(one, rule=f"restored: {one.rule}", run_id=one.run_id and _marked(one.run_id)) for one in violations],
        dict(runs),
        {_marked(run_id): evidence.histories[run_id].seen for run_id in named},
    )


def _marked(run_id: str) -> str:
    return f"{run_id} (restored)"


async def _calm(api: Api, ledger: Ledger, gathering: Gathering, seed: int) -> None:
    following, operators = Following(api, ledger, random.Random(seed)), Operators(api, ledger, seed)
    await stop_clock(api, ledger, gathering, int(time.time()))
    while gathering.open or await queued(gathering) or gathering.slots_in_use:
        await following.cancel_parked()
        await operators.end_pauses(gathering.paused)
        for run_id in gathering.open:  # whose user has gone
            account = gathering.accounts.get(run_id)
            if account is not None and account.workflow.name == SIGNALLED and run_id not in ledger.signals:
                await following.cancel(run_id)
        await asyncio.sleep(LOOK_S)
