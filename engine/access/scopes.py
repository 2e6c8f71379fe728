"""The scopes of API keys, and who a request comes from."""

from __future__ import annotations

from enum import StrEnum
from fnmatch import fnmatchcase

from msgspec import Struct

from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import OutOfScope


class KeyScope(StrEnum):
    """What a key may do. Each one includes those before it."""

    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"


_RANKS = {scope: rank for rank, scope in enumerate(KeyScope)}


class Caller(Struct, frozen=True):
    """Who a request comes from. `name` is that of its key, None while the API is open to everybody. `workflows` is the
    pattern of the names that it may deal with, None for all."""

    name: str | None = None
    scope: KeyScope = KeyScope.ADMIN
    workflows: str | None = None

    def may(self, scope: KeyScope) -> bool:
        """Whether the caller's scope includes this one."""
        return _RANKS[self.scope] >= _RANKS[scope]

    def sees(self, workflow: str) -> bool:
        """Whether the caller may deal with a workflow and its runs."""
        return self.workflows is None or matches(self.workflows, workflow)

    def check_scope(self, scope: KeyScope, what: str) -> None:
        """Raises OutOfScope when the caller's scope does not include this one; `what` was to be done."""
        if not self.may(scope):
            raise OutOfScope(f"{what} needs a key of scope {scope}: that of {quoted(self.name or '')} is {self.scope}")

    def check_workflow(self, workflow: str) -> None:
        """Raises OutOfScope for a workflow that the caller may not deal with."""
        if not self.sees(workflow):
            raise OutOfScope(f"{self._for_some()}, not for {quoted(workflow)}")

    def check_whole(self, what: str) -> None:
        """Raises OutOfScope for a key that is for some workflows only: `what` belongs to none of them."""
        if self.workflows is not None:
            raise OutOfScope(f"{what} needs a key for all workflows: {self._for_some()}")

    def _for_some(self) -> str:
        return f"the key {quoted(self.name or '')} is for the workflows {self.workflows}"


EVERYBODY = Caller()


def matches(pattern: str, workflow: str) -> bool:
    """Whether a workflow's name matches a pattern, in which `*` stands for any characters."""
    return fnmatchcase(workflow, pattern)
