"""What stands for a step, and for the run, where a later step names them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

from msgspec import Struct

from penstock.authoring.expressions import Expr
from penstock.authoring.literals import NAME, RESERVED, quoted_text
from penstock.engine.definition.identifiers import quoted

T = TypeVar("T")


class StepRef(Generic[T]):
    """A step of a workflow that is being written; where a value is expected, it stands for its output.

    For type checkers `output` is a value of the type that the step returns, so they know its fields. In fact it is an
    expression, which has its value when the run has come that far.
    """

    def __init__(self, step_id: str, output: Any = Any) -> None:
        self.id: str = step_id
        self._type = output

    @property
    def output(self) -> T:
        return cast(T, self.__expression__())

    @property
    def status(self) -> str:
        """`completed`, `skipped` or `recovered`, for those that come after it."""
        return cast(str, Expr(f"{self._text()}.status", of=str, what=f"step {quoted(self.id)}: its status"))

    def __expression__(self) -> Expr:
        return Expr(f"{self._text()}.output", of=self._type, what=f"step {quoted(self.id)}: its output")

    def _text(self) -> str:
        is_name = NAME.fullmatch(self.id) and self.id not in RESERVED
        return f"steps.{self.id}" if is_name else f"steps[{quoted_text(self.id)}]"

    def __repr__(self) -> str:
        return f"<step {self.id}>"


class RunRef:
    """The run: its id, workflow, version, labels and when it was created."""

    id: str
    workflow: str
    version: str
    created_at: str
    labels: dict[str, str]

    def __init__(self) -> None:
        for name in ("id", "workflow", "version", "created_at"):
            setattr(self, name, Expr(f"run.{name}", of=str, what=f"run.{name}"))
        self.labels = cast(dict[str, str], Expr("run.labels", of=dict[str, str], what="run.labels"))


class HttpOutput(Struct):
    """What an http step gives."""

    status: int
    headers: dict[str, str]
    body: Any


class ApprovalOutput(Struct):
    """What an approval gives."""

    comment: str | None
    approved_by: str | None
