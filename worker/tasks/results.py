"""What a task function returns, as the outcome that is reported. NonRetriable is raised for what cannot be written as
JSON: another attempt would give the same."""

from __future__ import annotations

from typing import Any

from penstock.config.limits import PAYLOAD_BYTES_MAX
from penstock.worker.outcomes import Continue, Pause, TaskCompleted, TaskContinued, TaskPaused
from penstock.worker.tasks.failures import NonRetriable
from penstock.worker.tasks.payloads import NoJson, as_json


def returned(name: str, output: Any) -> TaskCompleted | TaskContinued:
    """The outcome of the function of task type `name`, which has returned that."""
    if isinstance(output, Continue):
        return TaskContinued(_json(f'what "{name}" continues with', output.value))
    return TaskCompleted(_json(f'the output of "{name}"', output))


def put_aside(name: str, pause: Pause) -> TaskPaused:
    """The outcome of the function, which has raised that."""
    return TaskPaused(pause.delay_s, _json(f'the checkpoint of "{name}"', pause.checkpoint), pause.name)


def _json(what: str, value: Any) -> bytes | None:
    """A value as stored JSON."""
    if value is None:
        return None
    try:
        body = as_json(value)
    except NoJson as error:
        raise NonRetriable(f"{what} cannot be written as JSON: {error}") from error
    if len(body) > PAYLOAD_BYTES_MAX:
        raise NonRetriable(f"{what} has {len(body)} bytes, {PAYLOAD_BYTES_MAX} is the most")
    return body
