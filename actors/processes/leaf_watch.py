"""Checks the links to the hubs: every change is logged, the state is written to a file for /health."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NoReturn

from penstock.broker.embedded.leaf import NOT_YET, Link, all_down, check_links, write_report
from penstock.config.logging import get_logger
from penstock.config.settings import BrokerSettings
from penstock.engine.errors import Unavailable

EVERY_S = 1.0

log = get_logger()


async def watch_links(settings: BrokerSettings) -> NoReturn:
    """Check once a second, for ever. A check may take longer where host names are resolved slowly."""
    known: tuple[Link, ...] = ()
    while True:
        try:
            links = await asyncio.to_thread(check_links, settings)
        except Unavailable as error:
            links = all_down(settings, str(error))
        _log_changes(known, links)
        write_report(settings, links)
        known = links
        await asyncio.sleep(EVERY_S)


def _log_changes(known: Sequence[Link], links: Sequence[Link]) -> None:
    former = dict(enumerate(known))
    for number, link in enumerate(links):
        if former.get(number) == link:
            continue
        if link.connected:
            log.info("leaf_link_up", hub=link.address)
        elif link.problem != NOT_YET:
            log.warning("leaf_link_down", hub=link.address, problem=link.problem)
