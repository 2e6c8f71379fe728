"""The macros: what an expression may do with each element of a list, or each key of a map."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from penstock.engine.expressions.evaluation.comparing import LISTS, MAPS, BuiltList, kind_of
from penstock.engine.expressions.evaluation.failures import EvaluationError
from penstock.engine.expressions.evaluation.state import VALUE_WORK, Evaluation


class MacroParts(NamedTuple):
    """What a macro goes over, the place of its variable, what it asks and makes, and how many nodes these have."""

    over: Callable[[Evaluation], Any]
    place: int
    condition: Callable[[Evaluation], Any] | None
    body: Callable[[Evaluation], Any] | None
    nodes: int


def plan_macro(kind: str, loop: MacroParts) -> Callable[[Evaluation], Any]:
    """The function of one macro."""
    match kind:
        case "all":
            return _quantifier(loop, deciding=False)
        case "exists":
            return _quantifier(loop, deciding=True)
        case "exists_one":
            return _exists_one(loop)
        case _:
            return _map(loop)


def _quantifier(loop: MacroParts, *, deciding: bool) -> Callable[[Evaluation], bool]:
    """`all` and `exists`: an element that decides is enough, even if others fail."""

    def quantify(run: Evaluation) -> bool:
        failure: EvaluationError | None = None
        for _ in _elements(run, loop):
            try:
                if _asked(run, loop) is deciding:
                    return deciding
            except EvaluationError as error:
                failure = error
        if failure is not None:
            raise failure
        return not deciding

    return quantify


def _exists_one(loop: MacroParts) -> Callable[[Evaluation], bool]:
    return lambda run: sum(_asked(run, loop) for _ in _elements(run, loop)) == 1


def _map(loop: MacroParts) -> Callable[[Evaluation], BuiltList]:
    body, is_filtered = loop.body, loop.condition is not None
    assert body is not None

    def build(run: Evaluation) -> BuiltList:
        return BuiltList([body(run) for _ in _elements(run, loop) if not is_filtered or _asked(run, loop)])

    return build


def _elements(run: Evaluation, loop: MacroParts) -> Iterator[None]:
    """Give the variable one element after the other."""
    over = loop.over(run)
    if type(over) not in LISTS and type(over) not in MAPS:
        raise EvaluationError(f"a macro goes over an array or an object, not over {kind_of(over)}")
    place, variables, work = loop.place, run.variables, VALUE_WORK * loop.nodes
    for element in over:
        run.iterate(1)
        run.spend(work)
        variables[place] = element
        yield


def _asked(run: Evaluation, loop: MacroParts) -> bool:
    assert loop.condition is not None
    value = loop.condition(run)
    if value is True or value is False:
        return bool(value)
    raise EvaluationError(f"the condition of a macro must be true or false, not {kind_of(value)}")
