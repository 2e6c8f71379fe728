"""A child process: its name in the lists of the system, and its end with the process that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15


def end_with(parent: int) -> None:
    """Have the system send SIGTERM to this process when `parent` ends; exit at once if it has ended already. The child
    calls it: code that runs between fork and exec could wait forever for what a thread of the parent holds."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        sys.exit(1)


def set_name(name: str) -> None:
    """Name this process, in `ps -o pid,comm` and `top`: the system keeps 15 bytes. Its command line stays that of its
    parent."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
