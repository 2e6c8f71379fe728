"""`Workflow` and `task`: types, schemas, dependencies, and what is refused with its step and field."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from mypy import api

from penstock import Workflow, task
from penstock.authoring import default, failure_run, handler, item
from penstock.authoring.codecs import Codec
from penstock.authoring.tasks import task_of
from penstock.engine.errors import Invalid


@dataclass
class Line:
    sku: str
    n: int


@dataclass
class Order:
    id: str
    lines: list[Line]


class Receipt(msgspec.Struct, rename="camel"):
    order_id: str
    total: float | None = None


class Sent(TypedDict):
    to: str


class Note(pydantic.BaseModel):
    text: str = pydantic.Field(alias="body")


@task(retries=3, timeout=timedelta(minutes=1.5))
def charge(order: Order) -> Receipt:
    return Receipt(order.id)


@task("mail.send")
async def send(note: Note, ctx: object) -> Sent:
    return {"to": note.text}


def note_of(receipt: Receipt) -> Note:
    return Note(body=receipt.order_id)


def test_the_package_loads_nothing_until_a_name_is_used() -> None:
    code = "import sys, penstock; print([name for name in sys.modules if name.startswith(('penstock.', 'msgspec'))])"

    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "[]"


def test_a_function_stays_callable_as_it_is() -> None:
    assert charge(Order("o", [])) == Receipt("o")
    assert task_of(charge).input is Order
    assert task_of(note_of).output is Note


def test_what_a_task_has_is_what_its_steps_have_unless_they_say_otherwise() -> None:
    flow = Workflow("w")
    flow.step(charge)
    flow.step(charge, id="again", retry={"max_attempts": 1, "initial_delay": timedelta(seconds=1)}, after="charge")

    first, second = flow.definition()["steps"]

    assert first == {"id": "charge", "task": "charge", "retries": 3, "timeout": "1m30s"}
    assert (second["timeout"], second["retry"]) == ("1m30s", {"max_attempts": 1, "initial_delay": "1s"})
    assert "retries" not in second


def test_a_step_comes_after_what_it_reads_unless_its_predecessors_are_given() -> None:
    flow = Workflow("w", input=Order)
    paid = flow.step(charge, input=flow.input)
    odd = flow.step("x", id="a-b")
    flow.step("y", input={"of": [paid, f"{odd.output.n}"]})
    flow.step("z", when=odd.status == "completed", compensate=handler(charge, input=default.output))
    flow.step("last", after=[paid])

    after = {step["id"]: step.get("depends_on") for step in flow.definition()["steps"]}

    assert after == {"charge": None, "a-b": None, "y": ["charge", "a-b"], "z": ["a-b"], "last": ["charge"]}


def test_what_is_read_must_come_before_if_the_predecessors_are_given() -> None:
    flow = Workflow("w")
    first, second = flow.step("a"), flow.step("b")
    flow.step("c", after=first, when=second.output.x > 1)

    with pytest.raises(Invalid, match='step "c": when: column 1: step "b" is not among the steps'):
        flow.definition()


def test_a_value_with_references_becomes_templates() -> None:
    flow = Workflow("w", input=Order)
    line: Any = flow.input.lines[0]
    flow.step("x", input=Receipt(order_id=flow.input.id, total=line.n + 1))
    flow.map(charge, items=flow.input.lines, input={"line": item, "of": Order("o", [line])}, on_item_failure="continue")

    first, second = flow.definition()["steps"]

    assert first["with"] == {"orderId": "${{ input.id }}", "total": "${{ input.lines[0].n + 1 }}"}
    assert second["with"] == {"line": "${{ item }}", "of": {"id": "o", "lines": ["${{ input.lines[0] }}"]}}
    assert second["config"] == {"items": "${{ input.lines }}", "on_item_failure": "continue"}


@pytest.mark.parametrize("of", [Order, Receipt, Sent, Note, list[Note], dict[str, Order], Order | None])
def test_the_input_schema_is_that_of_the_type(of: Any) -> None:
    flow: Workflow[Any] = Workflow("w", input=of)
    flow.step("a")

    schema = flow.definition()["input_schema"]

    expected = pydantic.TypeAdapter(of).json_schema() if of in (Note, list[Note]) else msgspec.json.schema(of)
    assert schema == expected


def test_a_workflow_that_follows_a_failure() -> None:
    flow = Workflow("w", on_failure=failure_run(Workflow("alarm"), input={"why": default.error}), concurrency=2)
    flow.step("a", concurrency={"limit": 1, "key": flow.input.user}, priority=flow.input.level)

    found = flow.definition()

    assert found["on_failure"] == {"workflow": "alarm", "with": {"why": "${{ default.error }}"}}
    assert found["concurrency"] == [{"limit": 2}]
    assert found["steps"][0]["concurrency"] == [{"limit": 1, "key": "input.user"}]
    assert found["steps"][0]["priority"] == "input.level"


def typed_flow() -> tuple[Workflow[Order], Any, Any, Any]:
    flow = Workflow("w", input=Order)
    paid = flow.step(charge, input=flow.input)
    noted = flow.step(note_of, input=paid)
    return flow, paid, noted, flow.step(send, input=noted)


@pytest.mark.parametrize(
    ("use", "problem"),
    [
        (lambda flow, *_: flow.input.ids, 'input of workflow "w" has no field "ids"; there are: id, lines'),
        (lambda flow, *_: flow.input.lines[0].name, r'lines\[0\] has no field "name"; there are: n, sku'),
        (lambda flow, *_: flow.input.lines.sku, "it is an array: name an element of it"),
        (lambda flow, *_: flow.input.id.x, "it has none, being str"),
        (
            lambda _, paid, *__: paid.output.totl,
            'step "charge": its output has no field "totl"; there are: order_id, t',
        ),
        (lambda _, __, noted, ___: noted.output.subject, 'step "note_of": its output has no field "subject"'),
        (lambda _, __, ___, sent: sent.output["cc"], 'step "mail.send": its output has no field "cc"; there are: to'),
    ],
)
def test_a_field_that_a_type_has_not_is_refused_with_those_that_it_has(use: Callable[..., Any], problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        use(*typed_flow())


def test_a_field_has_its_name_in_json() -> None:
    _, paid, noted, _ = typed_flow()

    assert str(paid.output.order_id) == "${{ steps.charge.output.orderId }}"
    assert str(noted.output.text) == "${{ steps.note_of.output.body }}"


@pytest.mark.parametrize(
    ("add", "problem"),
    [
        (lambda flow: flow.step("a", retires=3), 'step "a": there is no option "retires"'),
        (lambda flow: flow.step("a", input={1: 2}), 'step "a": with: 1 is no key of an object'),
        (lambda flow: flow.step("a", input={"x": [object()]}), r'step "a": with.x\[0\]: .* cannot be written as JSON'),
        (lambda flow: flow.step("a", input=float("nan")), 'step "a": with: nan is no number of JSON'),
        (lambda flow: flow.step("a", timeout="soon"), 'step "a": timeout "soon" is not a duration'),
        (lambda flow: flow.step("a", after=7), "not iterable"),
        (lambda flow: flow.step("a", after=[7]), 'step "a": after: 7 is no step'),
        (lambda flow: [flow.step("a"), flow.step("a")], 'step "a" is there already: give one of them another `id`'),
        (lambda flow: flow.step(lambda: 1), "has no name"),
        (lambda flow: flow.step(7), "a function or the name of a task type, not 7"),
        (lambda flow: flow.map(), "a map needs a task, or a workflow"),
        (lambda flow: flow.sleep("s"), 'step "s"'),
        (lambda flow: flow.step("a", when="input.x >"), 'step "a": when: column 10: the expression ends too early'),
        (lambda flow: [flow.step(charge), flow.step(task("charge")(note_of), id="b")], 'another function is task "cha'),
    ],
)
def test_what_is_wrong_is_refused_with_its_step_and_field(add: Callable[[Any], Any], problem: str) -> None:
    flow = Workflow("w")

    with pytest.raises((Invalid, TypeError), match=problem):
        add(flow) and flow.definition()


def test_an_unknown_option_of_a_task_or_a_workflow_is_refused() -> None:
    with pytest.raises(Invalid, match='there is no option "retires"'):
        task(retires=3)  # type: ignore[call-overload]
    with pytest.raises(Invalid, match='a workflow has no option "timeuot"'):
        Workflow("w", timeuot="1s")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("of", "value", "problem"),
    [
        (Order, {"id": "o", "lines": [{"sku": "a", "n": "1"}]}, r"Expected `int`, got `str` - at `\$.lines\[0\].n`"),
        (Receipt, {}, "missing required field `orderId`"),
        (Sent, {"to": 1}, r"at `\$.to`"),
        (Note, {"text": "x"}, r"Field required - at `\$.body`"),
        (list[Note], [{"body": "x"}, {"body": 1}], r"at `\$\[1\].body`"),
    ],
)
def test_an_input_that_is_wrong_names_its_field(of: Any, value: Any, problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        Codec(of).decode(value)


SAMPLE = """
from dataclasses import dataclass
from penstock import Workflow, task

@dataclass
class Order:
    id: str

@dataclass
class Receipt:
    total: float

@task(retries=3)
async def charge(order: Order) -> Receipt:
    return Receipt(1.0)

@task
def tell(receipt: Receipt) -> None: ...

flow = Workflow("order", input=Order)
paid = flow.step(charge, input=flow.input.id)
flow.step(tell, after=paid, when=paid.output.total > 0)
flow.step("x", id="z", output=Receipt).output.total
flow.map(charge, items=[1]).output[0].total
"""


WRONG = {
    "paid.output.totl": '"Receipt" has no attribute "totl"',
    "flow.input.ids": '"Order" has no attribute "ids"',
    "flow.map(charge, items=[1], id='m').output[0].x": '"Receipt" has no attribute "x"',
    "flow.step(charge, retires=3)": "No overload variant",
    "charge(1)": 'incompatible type "int"',
}


def test_a_type_checker_finds_a_wrong_field_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE + "\n".join(WRONG))

    out, problems, _ = api.run(["--strict", "--config-file=", f"--cache-dir={tmp_path}", str(path)])

    first = SAMPLE.count("\n") + 1
    errors = [line for line in out.splitlines() if ": error: " in line]
    assert problems == ""
    assert sorted({int(error.split(":")[1]) for error in errors}) == list(range(first, first + len(WRONG))), out
    for number, expected in enumerate(WRONG.values(), first):
        assert any(f":{number}: error: " in error and expected in error for error in errors), (expected, out)
