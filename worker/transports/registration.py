"""The entry of a worker of this SDK in the workers bucket."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from importlib.metadata import version

from msgspec import UNSET

from penstock.broker.worker_messages import WorkerRegistration


def registration(
    worker_id: str,
    task_types: tuple[str, ...],
    max_tasks: int,
    group: str | None,
    metadata: Mapping[str, str],
    transport: str,
) -> WorkerRegistration:
    """The entry of a worker in this process."""
    return WorkerRegistration(
        worker_id=worker_id,
        task_types=task_types,
        language="python",
        transport=transport,
        max_tasks=max_tasks,
        metadata=metadata,
        hostname=socket.gethostname(),
        pid=os.getpid(),
        version=version("penstock"),
        worker_group=UNSET if group is None else group,
    )
