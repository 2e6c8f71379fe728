"""Load a run as it once was: after an event of its history, from the nearest state before it that is at hand."""

from __future__ import annotations

from msgspec import Struct

from penstock.actors.runs.loading import advance_safely, records, snapshots, workflow_of
from penstock.broker.records.past_states import PastState
from penstock.broker.store import Store
from penstock.engine.errors import Invalid, NotFound
from penstock.engine.run.state import Run


async def load_at(store: Store, run_id: str, seq: int) -> Run:
    """The run as it was when the event with this sequence of the log was stored. States along the way of a long run are
    kept for whoever asks next.

    Raises NotFound for an unknown run and before its first event, Invalid for a sequence that the log has not reached,
    Unavailable.
    """
    begin = await _state_before(store, run_id, seq)
    run, events, size = begin.run, begin.events, begin.size
    workflow = None if run is None else await workflow_of(store, run, ())
    first = later = 0
    async for page in store.history.pages(run_id, begin.seq, ahead_to=seq):
        first, later = first or page[0].seq, page[-1].seq
        tail = [record for record in records(page) if record.seq <= seq]
        workflow = workflow or await workflow_of(store, run, tail)
        if workflow is not None:
            for record in tail:
                run, _ = advance_safely(workflow, run, record)
        if later > seq:
            break
        events, size = events + len(page), size + sum(len(one.data) for one in page)
        if run is not None and begin.whole:
            store.past_states.keep(PastState(later, page[-1].at, run, events, size))
    if later <= seq and seq > (newest := await store.history.last_seq()):
        raise Invalid(f"at {seq} is in the future: the log has {newest} events so far")
    if run is None:
        begins = f": its first event is {first}" if first else ""
        raise NotFound(f"run {run_id} was not there at {seq}{begins}")
    return run


class _Begin(Struct, frozen=True):
    """A state from which to fold on, after the event `seq`. `whole`: all `events` until then are known to have `size`
    bytes."""

    run: Run | None = None
    seq: int = 0
    events: int = 0
    size: int = 0
    whole: bool = True


async def _state_before(store: Store, run_id: str, seq: int) -> _Begin:
    """The newest state up to this sequence that is at hand: the run's snapshot, or a state that was asked for before,
    whose event is still in the log."""
    run = (await snapshots(store, [run_id])).get(run_id)
    found = _Begin() if run is None or run.seq > seq else _Begin(run, run.seq, whole=False)
    past = store.past_states.newest(run_id, seq)
    if past is None or past.seq <= found.seq:
        return found
    stored = await store.history.at(run_id, past.seq)
    if stored is None or stored.at != past.at:
        store.past_states.forget(run_id)
        return found
    return _Begin(past.run, past.seq, past.events, past.size)
