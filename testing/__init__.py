"""The test kit: runs of real definitions in this process, decided by the service's own engine, on a clock that moves
when the test says so.

    with TestService() as service:
        service.fail("charge", times=2)
        run = service.start(flow, {"order": 7})
        service.advance("30d")
        assert run.output == {"receipt": 7}

service.py has `TestService`, run.py what a test sees of a run, starting.py its first event, by_hand.py what operators
do to it, asserting.py assertions about histories, and history.py the text that they show. plugin.py is the pytest
plugin, strategies.py is for Hypothesis. memory/ is the service in memory: what lies around the engine's `advance`.
triggers/ starts runs by itself, replaying/ lets a run of production happen once more, storms/ lets a workflow run under
many faults.

Not here: a broker, HTTP, processes; a test of these starts the service. Start reading at service.py.
"""

from penstock.testing.asserting import (
    assert_absent,
    assert_attempts,
    assert_completed,
    assert_failed,
    assert_happened,
    assert_steps,
    assert_waits,
)
from penstock.testing.history import HistoryEvent
from penstock.testing.replaying.differences import Difference
from penstock.testing.replaying.replay import Replay, assert_same, replay
from penstock.testing.run import StepOfRun, TestRun
from penstock.testing.service import TestService
from penstock.testing.storms.storm import StormReport, storm

__all__ = [
    "Difference",
    "HistoryEvent",
    "Replay",
    "StepOfRun",
    "StormReport",
    "TestRun",
    "TestService",
    "assert_absent",
    "assert_attempts",
    "assert_completed",
    "assert_failed",
    "assert_happened",
    "assert_same",
    "assert_steps",
    "assert_waits",
    "replay",
    "storm",
]
