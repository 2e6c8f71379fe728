"""Which functions and workers are accepted."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from penstock.engine.errors import Conflict, Invalid
from penstock.worker import Worker
from penstock.worker.functions import task_function


async def _async(value: Any) -> None: ...


def _sync(value: Any, ctx: Any) -> None: ...


def _keyword(value: Any, *, needed: int) -> None: ...


def _many(*values: Any) -> None: ...


def _three(a: Any, b: Any, c: Any) -> None: ...


def _generator(value: Any) -> Any:
    yield value


class _Callable:
    async def __call__(self, value: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "takes", "is_async"),
    [(_async, 1, True), (_sync, 2, False), (partial(_sync, 1), 1, False), (_Callable(), 1, True)],
)
def test_shape_is_found_out_at_registration(function: Any, takes: int, is_async: bool) -> None:
    found = task_function("t", function)
    assert (found.takes, found.is_async) == (takes, is_async)


@pytest.mark.parametrize("function", [_keyword, _many, _three, _generator])
def test_function_that_cannot_be_called_with_an_input_is_refused_by_name(function: Any) -> None:
    with pytest.raises(Invalid, match='task "words"'):
        Worker().task("words")(function)


def test_name_defaults_to_that_of_the_function() -> None:
    def word_count(value: Any) -> None: ...

    assert task_function(None, word_count).name == "word_count"


@pytest.mark.parametrize("name", ["", "a b", "a..b", ".a", "a/b", "a*", "x" * 129])
def test_bad_task_type_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="task type"):
        Worker().task(name)(_async)


def test_task_type_registered_twice_is_refused() -> None:
    worker = Worker()
    worker.task("a")(_async)
    with pytest.raises(Conflict, match='"a" is registered twice'):
        worker.task("a")(_sync)


def test_decorator_without_brackets_says_how_to_write_it() -> None:
    with pytest.raises(Invalid, match=r"@worker\.task\(\)"):
        Worker().task(_async)  # type: ignore[arg-type]


def test_all_problems_of_a_worker_are_reported_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        Worker(worker_id="a b", group="", max_tasks=0, metadata={"k": 1})  # type: ignore[dict-item]
    assert len(caught.value.problems) == 4


def test_two_workers_of_a_process_have_different_ids() -> None:
    assert Worker().worker_id != Worker().worker_id


async def test_worker_without_functions_does_not_start() -> None:
    with pytest.raises(Invalid, match="no task functions"):
        async with Worker().running():
            pass
