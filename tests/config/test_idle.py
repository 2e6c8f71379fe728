"""The CPU of the machine, and of a control group's quota, that is idle."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.config.process.idle import LOOK_S, TICK_S, IdleShare

CORES = os.cpu_count() or 1


class Machine:
    """Files like those of the kernel, and a clock."""

    def __init__(self, directory: Path) -> None:
        self.stat, self.group = directory / "stat", directory / "group"
        self.group.mkdir()
        self.now = 0.0
        self._idle_s = self._used_s = 0.0
        self.passes(0.0, 0.0)

    def passes(self, seconds: float, idle: float, used_s: float = 0.0) -> None:
        self.now += seconds
        self._idle_s += seconds * idle * CORES
        self._used_s += used_s
        self.stat.write_text(f"cpu  10 0 5 {round(self._idle_s / TICK_S)} 3 0 1 0 0 0\ncpu0 1 1 1 1\n")
        (self.group / "cpu.stat").write_text(f"usage_usec {round(self._used_s * 1e6)}\nuser_usec 1\n")

    def clock(self) -> float:
        return self.now


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_it_is_what_was_idle_since_the_last_look(machine: Machine) -> None:
    idle = IdleShare(machine.clock, machine.stat, machine.group)
    machine.passes(2.0, 0.75)
    assert 0.75 == pytest.approx(idle(), abs=0.02)
    machine.passes(2.0, 0.25)
    assert 0.25 == pytest.approx(idle(), abs=0.02)


def test_looks_that_come_sooner_say_the_same(machine: Machine) -> None:
    idle = IdleShare(machine.clock, machine.stat, machine.group)
    machine.passes(1.0, 0.5)
    first = idle()
    machine.passes(LOOK_S / 2, 0.0)
    assert first == idle()
    machine.passes(LOOK_S / 2, 0.0)
    assert 0.0 == pytest.approx(idle(), abs=0.02)


def test_a_quota_that_is_used_up_leaves_nothing_on_an_idle_machine(machine: Machine) -> None:
    (machine.group / "cpu.max").write_text("50000 100000\n")
    idle = IdleShare(machine.clock, machine.stat, machine.group)
    machine.passes(2.0, 1.0, used_s=1.0)
    assert 0.0 == pytest.approx(idle(), abs=0.02)
    machine.passes(2.0, 1.0, used_s=0.25)
    assert 0.75 == pytest.approx(idle(), abs=0.02)
    (machine.group / "cpu.max").write_text("max 100000\n")
    machine.passes(2.0, 1.0, used_s=1.0)
    assert 1.0 == pytest.approx(idle(), abs=0.02)


def test_a_system_that_does_not_say_has_nothing_idle(tmp_path: Path) -> None:
    now = iter(range(10))
    idle = IdleShare(lambda: float(next(now)), tmp_path / "none", tmp_path / "none")
    assert 0.0 == idle()
