"""The memory of the embedded broker: how much CPU it takes, and the collection of its garbage.

Go collects when the heap has grown by a share of itself, and otherwise every two minutes. Buffers that the broker has
pooled go with the second collection, and their pages after it: a broker that has nothing to do keeps for more than
five minutes what a burst has taken. Its profiler collects when it is asked.
"""

from __future__ import annotations

import time
from http.client import HTTPConnection, HTTPException

from penstock.broker.embedded.server import LOCAL, profiler_port
from penstock.config.settings import BrokerSettings

COLLECT = "/debug/pprof/heap?gc=1"
TIMES = 2  # the first makes the pools old, the second empties them
ANSWER_S_MAX = 5.0
CPU_CLOCK = 2  # CPUCLOCK_SCHED of the kernel


def collect_garbage(settings: BrokerSettings) -> bool:
    """Have the broker collect its garbage, which takes it some 20 ms for each 100 MB in use. Blocks. False: it did
    not."""
    port = profiler_port(settings)
    return port is not None and all(_collected(port) for _ in range(TIMES))


def cpu_s(pid: int) -> float | None:
    """CPU time that a process has used; None where the system does not say, or when it is gone."""
    try:
        return time.clock_gettime((~pid << 3) | CPU_CLOCK)  # the clock of another process: see clock_getcpuclockid(3)
    except OSError:
        return None


def _collected(port: int) -> bool:
    connection = HTTPConnection(LOCAL, port, timeout=ANSWER_S_MAX)
    try:
        connection.request("GET", COLLECT)
        return bool(connection.getresponse().read())
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
