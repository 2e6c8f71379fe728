"""What a test has said about tasks: which fail, what they answer, how long they take. It is kept by the name of a step
(`charge`, `lines`, `lines.3`) or of a task type, and a step's comes first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec import Struct

from penstock.engine.run.event_payloads import Failure


class FailTask(Struct, frozen=True):
    """The attempt fails; its function is not called."""

    failure: Failure


class AnswerTask(Struct, frozen=True):
    """The attempt ends as if its function had returned `value`, or what `value` returns when it is called with the
    input."""

    value: Any


class LoseTask(Struct, frozen=True):
    """The worker takes the task and dies, before or after it has called the function: the task is delivered again when
    the service has missed the worker."""

    after_call: bool = False


class DelayTask(Struct, frozen=True):
    """The outcome is reported so much later."""

    delay_s: float


class RepeatTask(Struct, frozen=True):
    """The task is delivered, and carried out, once more so much after its outcome."""

    after_s: float


class _Counted:
    __slots__ = ("entry", "left")

    def __init__(self, entry: Struct, times: int | None) -> None:
        self.entry, self.left = entry, times


S = TypeVar("S", bound=Struct)


class Script:
    """Owned by a service in memory. Of several for one name, those that were said first are used first."""

    def __init__(self) -> None:
        self._entries: dict[str, list[_Counted]] = {}

    def add(self, name: str, entry: Struct, times: int | None) -> None:
        """For so many deliveries; None: for all."""
        self._entries.setdefault(name, []).append(_Counted(entry, times))

    def clear(self, name: str | None) -> None:
        """Forget what was said about a name, or about all."""
        if name is None:
            self._entries.clear()
        else:
            self._entries.pop(name, None)

    def answers(self, names: Sequence[str]) -> bool:
        """Whether such a task ends without its function."""
        return any(
            isinstance(one.entry, FailTask | AnswerTask | LoseTask)
            for name in names
            for one in self._entries.get(name, ())
        )

    def take(self, names: Sequence[str], kinds: tuple[type[S], ...]) -> S | None:
        """The next entry of these kinds for one of the names, which is used up by that."""
        if not self._entries:
            return None
        for name in names:
            for one in self._entries.get(name, ()):
                if isinstance(one.entry, kinds):
                    self._use(name, one)
                    return one.entry
        return None

    def unused(self) -> list[str]:
        """The names with entries that should have been used a number of times, and were not so often."""
        return sorted(name for name, entries in self._entries.items() if any(one.left is not None for one in entries))

    def _use(self, name: str, one: _Counted) -> None:
        if one.left is None:
            return
        one.left -= 1
        if not one.left:
            self._entries[name].remove(one)
            if not self._entries[name]:
                del self._entries[name]
