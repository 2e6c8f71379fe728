"""Builds the text of an expression from Python's operators on what stands for a value of the run.

`flow.input.total > 100` is no comparison now, but the text `input.total > 100` for later. So nothing of it is true or
false yet: Python's `and`, `or`, `not`, `if` and `in` are refused, each with what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any, NoReturn, Protocol, runtime_checkable

from penstock.authoring.fields import SCALARS, alternatives, element_of, fields_of, is_array
from penstock.authoring.literals import member, number_text, quoted_text
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Invalid

METHODS = {"startswith": "startsWith", "endswith": "endsWith"}  # of strings: in Python, in expressions


@runtime_checkable
class StandsFor(Protocol):
    """What may be written in place of an expression: a step, for its output."""

    def __expression__(self) -> Expr: ...


class Binding(IntEnum):
    """How tightly the outermost operator of a text binds: what binds less needs parentheses."""

    TERNARY = 1
    OR = 2
    AND = 3
    RELATION = 4
    SUM = 5
    PRODUCT = 6
    UNARY = 7
    MEMBER = 8


class Expr:
    """Stands for a value that a run will have. Attributes and `[...]` name what is in it, operators build expressions.

    A field that the value's type does not have raises Invalid, with the fields that there are. `str()` of it, and its
    place in an f-string, is the template that gives the value.
    """

    __slots__ = ("_binding", "_method", "_text", "_type", "_what")

    def __init__(
        self,
        text: str,
        binding: Binding = Binding.MEMBER,
        of: Any = Any,
        what: str = "the value",
        method: tuple[Expr, str] | None = None,
    ) -> None:
        """`of` is the type of the value, `what` its name in errors. `method`: the text may also name a function of
        strings, if it is called."""
        self._text, self._binding, self._type, self._what, self._method = text, binding, of, what, method

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("_"):
            raise AttributeError(name)
        method = (self, METHODS[name]) if name in METHODS else None
        if method and alternatives(self._type) == [str]:
            return Expr(f"{_operand(self, Binding.MEMBER)}.{METHODS[name]}", what=name, method=method)
        return self._field(name, method)

    def __getitem__(self, key: Any) -> Expr:
        if isinstance(key, str):
            return self._field(key, None)
        if isinstance(key, slice):
            raise TypeError("an expression has no slices: write filter_(...), or do it in a task")
        if isinstance(key, int) and not isinstance(key, bool) and key < 0:
            raise TypeError(f"an expression does not count from the end: write x[size(x) - {-key}]")
        text = f"{_operand(self, Binding.MEMBER)}[{text_of(key)}]"
        return Expr(text, of=element_of(self._type), what=f"{self._what}[{text_of(key)}]")

    def _field(self, name: str, method: tuple[Expr, str] | None) -> Expr:
        known = fields_of(self._type)
        named, of = name, element_of(self._type)
        if known is not None:
            if (field := known.get(name) or _by_json_name(known, name)) is None:
                raise Invalid(f"{self._what} has no field {quoted(name)}; {_listed(known, self._type)}")
            named, of = field
        return Expr(
            f"{_operand(self, Binding.MEMBER)}{member(named)}",
            of=of,
            what=f"{self._what}{member(named)}",
            method=method,
        )

    def __call__(self, *args: object) -> Expr:
        if self._method is None:
            raise TypeError(
                f"{self._text} cannot be called: expressions know the methods {', '.join(METHODS)} of strings, and the "
                "functions of penstock.authoring"
            )
        owner, name = self._method
        given = ", ".join(map(text_of, args))
        return Expr(f"{_operand(owner, Binding.MEMBER)}.{name}({given})", of=bool)

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{self._text} has no value before the run: for `a and b` write and_(a, b), for `a or b` or_(a, b), for "
            "`not a` not_(a), for `x if a else y` if_(a, x, y), for `1 < a < 3` and_(1 < a, a < 3); and in place of an "
            "`if` statement give the step a `when`"
        )

    def __len__(self) -> NoReturn:
        raise TypeError(f"{self._text} has no length before the run: write size(...)")

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            f"{self._text} has no elements before the run: write map_, filter_, any_ or all_, or a step with flow.map"
        )

    def __contains__(self, value: object) -> NoReturn:
        raise TypeError(f"{self._text} has no elements before the run: for `a in b` write in_(a, b)")

    def __int__(self) -> NoReturn:
        raise TypeError(f"{self._text} has no value before the run: write int_(...)")

    def __float__(self) -> NoReturn:
        raise TypeError(f"{self._text} has no value before the run: write number(...)")

    def __setattr__(self, name: str, value: object) -> None:
        if name not in Expr.__slots__:
            raise TypeError(f"{self._text}.{name} cannot be set: a definition says what a step is given, by `input`")
        object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _compared(self, "==", other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _compared(self, "!=", other)

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, other: object) -> Expr:
        return _compared(self, "<", other)

    def __le__(self, other: object) -> Expr:
        return _compared(self, "<=", other)

    def __gt__(self, other: object) -> Expr:
        return _compared(self, ">", other)

    def __ge__(self, other: object) -> Expr:
        return _compared(self, ">=", other)

    def __add__(self, other: object) -> Expr:
        return joined(Binding.SUM, "+", self, other)

    def __radd__(self, other: object) -> Expr:
        return joined(Binding.SUM, "+", other, self)

    def __sub__(self, other: object) -> Expr:
        return joined(Binding.SUM, "-", self, other)

    def __rsub__(self, other: object) -> Expr:
        return joined(Binding.SUM, "-", other, self)

    def __mul__(self, other: object) -> Expr:
        return joined(Binding.PRODUCT, "*", self, other)

    def __rmul__(self, other: object) -> Expr:
        return joined(Binding.PRODUCT, "*", other, self)

    def __truediv__(self, other: object) -> Expr:
        return joined(Binding.PRODUCT, "/", self, _decimal(other))

    def __rtruediv__(self, other: object) -> Expr:
        return joined(Binding.PRODUCT, "/", other, _decimal(self))

    def __mod__(self, other: object) -> Expr:
        return _remainder(self, other)

    def __rmod__(self, other: object) -> Expr:
        return _remainder(other, self)

    def __floordiv__(self, other: object) -> Expr:
        return _quotient(self, other)

    def __rfloordiv__(self, other: object) -> Expr:
        return _quotient(other, self)

    def __neg__(self) -> Expr:
        return Expr(f"-{_operand(self, Binding.MEMBER)}", Binding.UNARY)

    def __and__(self, other: object) -> Expr:
        return all_of("&&", Binding.AND, self, other)

    def __rand__(self, other: object) -> Expr:
        return all_of("&&", Binding.AND, other, self)

    def __or__(self, other: object) -> Expr:
        return all_of("||", Binding.OR, self, other)

    def __ror__(self, other: object) -> Expr:
        return all_of("||", Binding.OR, other, self)

    def __invert__(self) -> Expr:
        return negated(self)

    def __str__(self) -> str:
        return template_of(self)

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(f"{self._text} has no value before the run, so the format {spec!r} cannot be applied to it")
        return template_of(self)

    def __repr__(self) -> str:
        return f"<expression {self._text}>"


def text_of(value: object) -> str:
    """The text of an expression that gives this value. Raises TypeError for what no expression can give."""
    return _bound(value)[0]


def template_of(value: Expr) -> str:
    """The template that is replaced by the value."""
    return f"${{{{ {value._text} }}}}"


def joined(binding: Binding, operator: str, left: object, right: object) -> Expr:
    """Two operands with an operator that groups from the left."""
    return Expr(f"{_operand(left, binding)} {operator} {_operand(right, Binding(binding + 1))}", binding)


def all_of(operator: str, binding: Binding, *parts: object) -> Expr:
    """Conditions with `&&` or `||` between them. Raises TypeError for a number or a text among them: Python binds `&`
    more tightly than a comparison."""
    for part in parts:
        if not isinstance(part, Expr | bool):
            raise TypeError(
                f"{part!r} is no condition; beside & and | a comparison needs parentheses: (a > 1) & (b > 1)"
            )
    return Expr(f" {operator} ".join(_operand(part, binding) for part in parts), binding, of=bool)


def negated(value: object) -> Expr:
    return Expr(f"!{_operand(value, Binding.MEMBER)}", Binding.UNARY, of=bool)


def called(name: str, *args: object, of: Any = Any) -> Expr:
    """A call of one of CEL's functions."""
    return Expr(f"{name}({', '.join(map(text_of, args))})", of=of)


def invoked(name: str, owner: object, *args: object, of: Any = Any) -> Expr:
    """A call of one of CEL's functions that stands after its first argument: `owner.name(...)`."""
    return Expr(f"{_operand(owner, Binding.MEMBER)}.{name}({', '.join(map(text_of, args))})", of=of)


def macro(name: str, of: object, each: Callable[[Any], object], variable: str) -> Expr:
    """A macro over the elements of an array: `each` gets what stands for an element."""
    of_element = element_of(of._type) if isinstance(of, Expr) else Any
    body = text_of(each(Expr(variable, of=of_element, what=f"an element of {text_of(of)}")))
    return Expr(f"{_operand(of, Binding.MEMBER)}.{name}({variable}, {body})")


def conditional(condition: object, then: object, otherwise: object) -> Expr:
    first, second = _operand(condition, Binding.OR), _operand(then, Binding.OR)
    return Expr(f"{first} ? {second} : {_operand(otherwise, Binding.TERNARY)}", Binding.TERNARY)


def _compared(left: object, operator: str, right: object) -> Expr:
    sides = (_operand(left, Binding.SUM), _operand(right, Binding.SUM))
    return Expr(f"{sides[0]} {operator} {sides[1]}", Binding.RELATION, of=bool)


def _decimal(value: object) -> object:
    """The value as a decimal: between integers CEL's division drops the rest, Python's does not."""
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    return value if isinstance(value, float) else called("double", value)


def _remainder(left: object, right: object) -> Expr:
    """Python's rest of a division of integers: it has the sign of the divisor. CEL's has that of the dividend."""
    rest = joined(Binding.PRODUCT, "%", left, right)
    return joined(Binding.PRODUCT, "%", joined(Binding.SUM, "+", rest, right), right)


def _quotient(left: object, right: object) -> Expr:
    """Python's division of integers, which rounds down. CEL's drops the rest."""
    return joined(Binding.PRODUCT, "/", joined(Binding.SUM, "-", left, _remainder(left, right)), right)


def _operand(value: object, least: Binding) -> str:
    text, binding = _bound(value)
    return text if binding >= least else f"({text})"


def _bound(value: object) -> tuple[str, Binding]:
    match value:
        case Expr():
            return value._text, value._binding
        case None:
            return "null", Binding.MEMBER
        case bool():
            return str(value).lower(), Binding.MEMBER
        case int() | float():
            text = number_text(value)
            return text, Binding.UNARY if text.startswith("-") else Binding.MEMBER
        case str():
            return quoted_text(value), Binding.MEMBER
        case list() | tuple():
            return f"[{', '.join(map(text_of, value))}]", Binding.MEMBER
        case Mapping():
            parts = (f"{_key(key)}: {text_of(each)}" for key, each in value.items())
            return f"{{{', '.join(parts)}}}", Binding.MEMBER
    if isinstance(value, StandsFor):
        found = value.__expression__()
        return found._text, found._binding
    raise TypeError(f"{value!r} cannot stand in an expression: it takes values of JSON, and what flow and steps give")


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{key!r} is no key of an object: keys are strings")
    return quoted_text(key)


def _by_json_name(known: Mapping[str, Any], name: str) -> Any:
    return next((field for field in known.values() if field.name == name), None)


def _listed(known: Mapping[str, Any], of: Any) -> str:
    if known:
        return f"there are: {', '.join(sorted(known))}"
    if is_array(of):
        return "it is an array: name an element of it, as [0]"
    named = [one.__name__ for one in alternatives(of) if isinstance(one, type) and issubclass(one, SCALARS)]
    return f"it has none, being {' or '.join(named) or 'null'}"
