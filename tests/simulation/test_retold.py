"""What is told again from a log holds for lawful runs that few seeds have."""

from __future__ import annotations

from tests.simulation.clock import simulated
from tests.simulation.plan import OVERDUE, Move, Plan
from tests.simulation.playing import play


def test_a_run_undoes_its_steps_when_its_time_is_over_after_a_pause() -> None:
    moves = (Move(0.2, "start"), Move(1.0, "pause run"), Move(2.0, "resume run"))
    with simulated():
        outcome = play(Plan(1, (OVERDUE,), 0.004, 0.2, 6.0, moves), trace=True)
    assert outcome.law is None
    (fired,) = [line for line in outcome.trace if " fires schedule." in line]
    assert fired.endswith(".workflow+1")
    assert any('"type":"workflow.compensating"' in line for line in outcome.trace)
    assert any('"task_id":' in line and ".s0.compensate" in line for line in outcome.trace)
