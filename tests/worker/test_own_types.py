"""A worker has nothing to do with tasks of other types."""

from __future__ import annotations

from penstock.broker.store import Store
from penstock.engine.run.events import StepCompleted
from penstock.worker import Worker
from tests.worker.task_queue import acknowledged, answer, dispatch, waiting


async def test_worker_gets_tasks_of_its_own_types_only(store: Store, worker: Worker, task: str) -> None:
    """Types whose names begin alike are as different as any."""
    taken: list[str] = []

    @worker.task(task)
    async def take(value: str) -> None:
        taken.append(value)

    others = [f"{task}.more", f"{task}-more", task[:-1]]
    for other in others:
        await dispatch(store, other, other)
    own = [await dispatch(store, task, "own") for _ in range(3)]
    async with worker.running():
        for run_id in own:
            assert isinstance(await answer(store, run_id), StepCompleted)
        await acknowledged(store, task)
    assert ["own"] * 3 == taken
    assert [1, 1, 1] == [await waiting(store, other) for other in others]
