"""The timer by which a run that only a newer version can read reminds its owners of itself.

An owner of an older version leaves the run's events, which count as handled then; an owner that gets the timer and can
read the run carries out what they have ordered.
"""

from __future__ import annotations

from penstock.actors.runs.shared.mailbox import PendingEvent

UPGRADE_TIMER = "upgrade"  # belongs to no step: `advance` ignores it
FIRED_START, NAMED = b'{"type":"timer.fired"', b'"timer":"%b"' % UPGRADE_TIMER.encode()


def is_upgrade_check(event: PendingEvent) -> bool:
    """Whether the event is that timer."""
    body = event.delivery.data
    return body.startswith(FIRED_START) and NAMED in body
