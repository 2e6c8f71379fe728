"""A notice of the supervisor to its front ends, such as that the storage does not work: a few bytes of shared memory.

A file or the broker cannot carry it when the disk takes no writes. The front ends inherit the open memory and find its
descriptor in their environment. Without a supervisor there is never a notice.
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
        """Replace the text. An empty text means that all is well."""
        os.pwrite(self.descriptor, text.encode()[:BYTES].ljust(BYTES, b"\0"), 0)


class NoticeReader:
    """Reads the notice of this process's supervisor, if it has one."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        number = os.environ.get(VARIABLE, "")
        with suppress(OSError, ValueError):  # the variable came without the memory
            self._memory = mmap.mmap(int(number), BYTES, prot=mmap.PROT_READ) if number.isdigit() else None

    def text(self) -> str:
        """The current notice, empty when all is well."""
        if self._memory is None or not self._memory[0]:
            return ""
        return self._memory[:].rstrip(b"\0").decode(errors="replace")
