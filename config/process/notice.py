"""What the supervisor tells its front ends when the storage does not work: a few bytes of shared memory.

Neither a file nor the broker would do, for the disk takes nothing just then. The front ends inherit the open memory,
and find its number in their environment; where there is no supervisor, there is never a notice.
"""

from __future__ import annotations

import mmap
import os
from contextlib import suppress

VARIABLE = "PENSTOCK_NOTICE"
BYTES = 2048


class Notice:
    """Owned by the supervisor's process. `descriptor` is for the children to inherit."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("penstock-notice")
        self.environ = {VARIABLE: str(self.descriptor)}
        self.say("")

    def say(self, text: str) -> None:
        """Replace what is told; nothing is told by an empty text."""
        os.pwrite(self.descriptor, text.encode()[:BYTES].ljust(BYTES, b"\0"), 0)


class Reading:
    """What this process's supervisor tells, in a process that was started by one or not."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        number = os.environ.get(VARIABLE, "")
        with suppress(OSError, ValueError):  # the variable came without the memory
            self._memory = mmap.mmap(int(number), BYTES, prot=mmap.PROT_READ) if number.isdigit() else None

    def text(self) -> str:
        """Empty when all is well."""
        if self._memory is None or not self._memory[0]:
            return ""
        return self._memory[:].rstrip(b"\0").decode(errors="replace")
