"""How much the test kit does in a time: bounds with room for a machine that is slow and busy."""

from __future__ import annotations

import subprocess
import sys
import time

from penstock.testing import TestService

STEPS = [{"id": "a", "task": "t"}, {"id": "b", "task": "t", "depends_on": ["a"]}, {"id": "c", "task": "t", "depends_on": ["b"]}]  # fmt: skip  # noqa: E501
RUNS, RUNS_PER_CPU_S_MIN = 500, 400
SLEEP_S_MAX = 0.1
HEAVY = ("nats", "falcon", "httpx2", "structlog", "rich", "penstock.worker.worker", "penstock.broker.store")


def test_runs_of_three_steps_come_by_hundreds_a_second() -> None:
    with TestService(tasks={"t": lambda value: value}) as service:
        began = time.process_time()
        for number in range(RUNS):
            assert service.start({"name": "f", "steps": STEPS}, number).output == number
        assert RUNS / (time.process_time() - began) > RUNS_PER_CPU_S_MIN


def test_thirty_days_of_sleep_take_no_time() -> None:
    with TestService({"name": "f", "steps": [{"id": "s", "type": "sleep", "config": {"duration": "720h"}}]}) as service:
        service.start("f").result()
        began = time.process_time()
        service.start("f").result()
        assert time.process_time() - began < SLEEP_S_MAX


def test_the_kit_loads_neither_a_broker_nor_http() -> None:
    code = f"import sys, penstock.testing; print([name for name in {HEAVY!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
