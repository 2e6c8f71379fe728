"""Which reasons want somebody, and that it follows from the reason alone."""

from __future__ import annotations

import msgspec
import pytest

from penstock.engine.waiting.reasons import Reason, WaitingReason

SINCE = "2026-01-02T03:04:05Z"
WANTING = {
    Reason.PAUSED,
    Reason.STORAGE_FULL,
    Reason.PARTITION_UNOWNED,
    Reason.ENGINE_BEHIND,
    Reason.NO_WORKER,
    Reason.WORKER_GROUP_EMPTY,
    Reason.STICKY_WORKER_GONE,
    Reason.WORKER_SILENT,
    Reason.WAITING_APPROVAL,
}


@pytest.mark.parametrize("reason", Reason)
def test_somebody_is_wanted_where_the_wait_does_not_end_by_itself(reason: Reason) -> None:
    found = WaitingReason(reason=reason, since=SINCE, text="it waits", details={})
    assert (reason in WANTING) == found.wants_somebody
    assert found.wants_somebody == ("wants_somebody" in msgspec.json.decode(msgspec.json.encode(found)))


def test_a_step_that_its_worker_has_put_aside_wants_nobody_whatever_is_given() -> None:
    aside = WaitingReason(
        step_id="a", reason=Reason.PAUSED, since=SINCE, text="it waits", details={}, wants_somebody=True
    )
    assert False is aside.wants_somebody
    told = msgspec.json.encode({**msgspec.to_builtins(aside), "wants_somebody": True})
    assert aside == msgspec.json.decode(told, type=WaitingReason)
