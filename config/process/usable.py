"""What this process may use of its machine: cores by its affinity and by the quota of its control group, memory by the
limit of the group."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

GROUP, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def usable_cores(group: Path | None = None) -> float:
    """How many cores this process may use at a time."""
    cores = len(os.sched_getaffinity(0))
    quota = core_quota(control_group() if group is None else group)
    return cores if quota is None else min(cores, quota)


def usable_memory(group: Path | None = None) -> int:
    """How many bytes of memory this process and others of its control group may use."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # it is `max` where there is no limit
        return min(machine, int(((control_group() if group is None else group) / "memory.max").read_text()))
    return machine


def control_group() -> Path:
    """The directory of this process's control group (version 2); one that is not there where it has none."""
    with suppress(OSError):
        for line in GROUP.read_text().splitlines():
            if line.startswith("0::"):
                return GROUPS / line[3:].lstrip("/")
    return GROUPS / "none"


def core_quota(group: Path) -> float | None:
    """How many cores the group may use; None: no limit is set for it."""
    with suppress(OSError, ValueError):
        most, period = (group / "cpu.max").read_text().split()
        return None if most == "max" else int(most) / int(period)
    return None
