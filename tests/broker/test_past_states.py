"""States of runs kept in memory: which is found, and which leave first."""

from __future__ import annotations

import msgspec

from penstock.broker.nats.leader import Stored
from penstock.broker.records.past_states import EVENT_BYTES, EVENTS_APART, EndedRuns, PastState, PastStates
from penstock.engine.run.state import Run, RunStatus

PAGE = 1000
PAGE_BYTES = PAGE * (EVENT_BYTES + 100)


def state(run_id: str, page: int) -> PastState:
    """After so many pages of events of 100 bytes each."""
    run = Run(run_id, "w", "1", "d", RunStatus.RUNNING, "2026-01-02T03:04:05Z", page * PAGE)
    return PastState(run.seq, 0.0, run, page * PAGE, page * PAGE * 100)


def found(states: PastStates, run_id: str, seq: int) -> int | None:
    newest = states.newest(run_id, seq)
    return None if newest is None else newest.seq


def test_the_newest_state_up_to_a_sequence_is_found() -> None:
    states = PastStates()
    for page in (1, 2, 4):
        states.keep(state("a", page))
    assert [found(states, "a", seq) for seq in (999, 1000, 2000, 3999, 4000, 9000)] == [
        None,
        1000,
        2000,
        2000,
        4000,
        4000,
    ]
    assert found(states, "b", 9000) is None


def test_what_is_kept_already_and_what_is_near_it_is_not_kept() -> None:
    states = PastStates()
    states.keep(state("a", 2))
    near = state("a", 2)
    states.keep(PastState(2400, 0.0, near.run, near.events + EVENTS_APART - 1, near.size))
    states.keep(state("a", 1))
    states.keep(state("a", 2))
    assert [found(states, "a", seq) for seq in (1999, 2000, 2400)] == [None, 2000, 2000]


def test_the_run_that_was_asked_for_longest_ago_leaves_with_all_its_states() -> None:
    states = PastStates(most=4 * PAGE_BYTES)
    for run_id, page in (("a", 1), ("b", 1), ("a", 2), ("c", 1)):
        states.keep(state(run_id, page))
    assert found(states, "a", 9000) == 2000
    states.keep(state("d", 1))
    kept = {run_id: found(states, run_id, 9000) for run_id in "abcd"}
    assert kept == {"a": 2000, "b": None, "c": 1000, "d": 1000}


def test_a_run_is_kept_as_far_as_it_has_room_and_forgotten_whole() -> None:
    states = PastStates(most=2 * PAGE_BYTES)
    for page in (1, 2, 3):
        states.keep(state("a", page))
    assert found(states, "a", 9000) == 2000
    states.forget("a")
    assert found(states, "a", 9000) is None
    states.keep(state("b", 2))  # all of the room is free again
    assert found(states, "b", 9000) == 2000


def ended(seq: int, size: int = 100) -> Stored:
    return Stored(f"history.0.{seq:032}", seq, float(seq), bytes(size))


def test_an_ended_run_is_found_by_its_last_event_and_by_no_other_of_that_sequence() -> None:
    runs, run = EndedRuns(), state("a", 1).run
    runs.keep(ended(1), run)
    assert run is runs.get(msgspec.structs.replace(ended(1), headers=b"Nats-Num-Pending: 7"))
    for changed in ({"at": 1.5}, {"subject": "history.0.b"}, {"data": b""}):
        assert runs.get(msgspec.structs.replace(ended(1), **changed)) is None
    assert runs.get(ended(2)) is None


def test_of_ended_runs_those_that_were_kept_first_go_first() -> None:
    run = state("a", 1).run
    for runs in (EndedRuns(most=2), EndedRuns(most_bytes=250)):
        for seq in (1, 2, 1, 3):
            runs.keep(ended(seq), run)
        assert [None, run, run] == [runs.get(ended(seq)) for seq in (2, 1, 3)]
        runs.keep(ended(4, 240), run)
        assert runs.get(ended(4, 240)) is run
    assert runs.get(ended(3)) is None, "they have no room beside the large one"
    runs.keep(ended(5, 251), run)
    assert [None, None] == [runs.get(ended(4, 240)), runs.get(ended(5, 251))]
