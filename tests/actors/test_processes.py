"""How a child process of the engine ends when it cannot go on."""

from __future__ import annotations

import subprocess
import sys

import pytest

ALONE = "raise Unavailable('no broker')"
TOGETHER = """
    async def job():
        raise Unavailable('no broker')
    async with asyncio.TaskGroup() as outer:
        outer.create_task(job())
"""
PROGRAM = """
import asyncio
from penstock.actors.processes.children import _main
from penstock.config.settings import Settings
from penstock.engine.errors import Unavailable

async def work(stop):
    {body}

_main(Settings(), "services", work)
"""


@pytest.mark.parametrize("body", [ALONE, TOGETHER])
def test_a_process_that_gives_up_says_why_in_one_line(body: str) -> None:
    """Also one with several jobs, whose errors come in a group."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body)], capture_output=True, text=True, timeout=30, check=False
    )

    (line,) = (ran.stdout + ran.stderr).splitlines()
    assert 1 == ran.returncode
    assert "process_gave_up" in line
    assert "no broker" in line


def test_a_mistake_in_the_program_keeps_its_traceback() -> None:
    body = "raise ZeroDivisionError"
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body)], capture_output=True, text=True, timeout=30, check=False
    )

    assert 0 != ran.returncode
    assert "Traceback" in ran.stderr
