"""Registrations of workers, as somebody else's worker may write them."""

from __future__ import annotations

import msgspec
import pytest

from penstock.broker.worker_messages import WorkerRegistration


def read(body: bytes) -> WorkerRegistration:
    return msgspec.json.decode(body, type=WorkerRegistration)


def test_an_id_and_task_types_are_enough() -> None:
    found = read(b'{"worker_id":"w","task_types":["a","b"]}')
    assert ("w", ("a", "b"), 1, "", {}) == (
        found.worker_id,
        found.task_types,
        found.max_tasks,
        found.transport,
        found.metadata,
    )


@pytest.mark.parametrize("body", [b'{"worker_id":"w"}', b'{"task_types":["a"]}', b'{"worker_id":"w","task_types":"a"}'])
def test_without_them_it_is_none(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(body)
