"""`worker.run()` inside a running event loop (a notebook, an async application) says what to do instead."""

from __future__ import annotations

import pytest

from penstock.worker import Worker


async def test_run_in_a_running_loop_names_what_to_await() -> None:
    worker = Worker()
    worker.task("hello")(lambda: None)

    with pytest.raises(RuntimeError, match=r"await worker\.serve\(\)"):
        worker.run()
