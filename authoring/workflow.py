"""`Workflow`: a definition that is written in Python."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, cast, overload

import orjson

from penstock.authoring.codecs import Codec
from penstock.authoring.documents import definition_document, workflow_fields
from penstock.authoring.expressions import Expr
from penstock.authoring.options import (
    NOT_GIVEN,
    ApprovalOptions,
    ChildOptions,
    HttpOptions,
    LoopOptions,
    MapOptions,
    PlannerOptions,
    RespondOptions,
    SleepOptions,
    TaskLike,
    WaitOptions,
    WorkerOptions,
    WorkflowOptions,
    name_of,
)
from penstock.authoring.references import ApprovalOutput, HttpOutput, RunRef, StepRef
from penstock.authoring.steps import Draft, Target, divided, draft, target, with_dependencies
from penstock.authoring.tasks import Task
from penstock.engine.definition.identifiers import quoted
from penstock.engine.errors import Invalid

if TYPE_CHECKING:
    from penstock.authoring.linting import LintFinding

In = TypeVar("In")
Out = TypeVar("Out")
R = TypeVar("R")


class Workflow(Generic[In]):
    """A workflow whose steps are added one after the other; `definition()` is its JSON, and says the same.

    `input` is the type of its runs' input: it gives the `input_schema`, and the fields of `flow.input`. The other
    options are the fields of a definition. Each method for a step returns a reference, which later steps use. The
    methods raise Invalid for what no definition can have, with the step and the field.
    """

    @overload
    def __init__(self, name: str, *, input: type[In], **options: Unpack[WorkflowOptions]) -> None: ...
    @overload
    def __init__(self: Workflow[Any], name: str, **options: Unpack[WorkflowOptions]) -> None: ...
    def __init__(self, name: str, *, input: Any = Any, **options: Any) -> None:
        self.name: str = name
        self.tasks: dict[str, Task] = {}
        self.run: RunRef = RunRef()
        self._input = Expr("input", of=input, what=f"the input of workflow {quoted(str(name))}")
        self._drafts: dict[str, Draft] = {}
        self._fields: dict[str, Any] = workflow_fields(options)
        if "input_schema" not in options and (schema := Codec(input).schema()) is not None:
            self._fields["input_schema"] = schema

    @property
    def input(self) -> In:
        """The run's input: for type checkers a value of its type, in fact an expression."""
        return cast(In, self._input)

    def __getitem__(self, step_id: str) -> StepRef[Any]:
        """The step of this id. Raises KeyError."""
        if step_id not in self._drafts:
            raise KeyError(step_id)
        return StepRef(step_id)

    # What workers carry out.

    @overload
    def step(
        self,
        task: TaskLike,
        *,
        output: type[Out],
        id: str | None = None,
        input: Any = ...,
        **options: Unpack[WorkerOptions],
    ) -> StepRef[Out]: ...
    @overload
    def step(
        self, task: str, *, id: str | None = None, input: Any = ..., **options: Unpack[WorkerOptions]
    ) -> StepRef[Any]: ...
    @overload
    def step(
        self,
        task: Callable[..., Coroutine[Any, Any, R]],
        *,
        id: str | None = None,
        input: Any = ...,
        **options: Unpack[WorkerOptions],
    ) -> StepRef[R]: ...
    @overload
    def step(
        self, task: Callable[..., R], *, id: str | None = None, input: Any = ..., **options: Unpack[WorkerOptions]
    ) -> StepRef[R]: ...
    def step(
        self, task: TaskLike, *, id: str | None = None, input: Any = NOT_GIVEN, output: Any = None, **options: Any
    ) -> StepRef[Any]:
        """A step that a worker carries out once. `id`: the task type, if it is not given. `input` may have references
        in it; without one the step is given what definitions say (docs/workflows.md). `output` is its type, where the
        function does not say it."""
        by = target(task)
        return self._add(draft(id or by.name, {**options, "with": input}, by=by), _output(by, output))

    @overload
    def agent_loop(
        self,
        task: TaskLike,
        *,
        output: type[Out],
        id: str | None = None,
        input: Any = ...,
        **options: Unpack[LoopOptions],
    ) -> StepRef[Out]: ...
    @overload
    def agent_loop(
        self, task: TaskLike, *, id: str | None = None, input: Any = ..., **options: Unpack[LoopOptions]
    ) -> StepRef[Any]: ...
    def agent_loop(
        self, task: TaskLike, *, id: str | None = None, input: Any = NOT_GIVEN, output: Any = None, **options: Any
    ) -> StepRef[Any]:
        """A step that is carried out again until its function returns something other than `Continue`."""
        by, (config, rest) = target(task), divided(options, LoopOptions)
        found = draft(id or by.name, {**rest, "with": input}, kind="agent_loop", by=by, config=config)
        return self._add(found, _output(by, output))

    def planner(
        self, task: TaskLike, *, id: str | None = None, input: Any = NOT_GIVEN, **options: Unpack[PlannerOptions]
    ) -> StepRef[Any]:
        """A step whose function returns steps: `{"steps": [...]}`. Its output is theirs."""
        by, (config, rest) = target(task), divided(options, PlannerOptions)
        return self._add(draft(id or by.name, {**rest, "with": input}, kind="planner", by=by, config=config), Any)

    @overload
    def map(
        self,
        task: Callable[..., Coroutine[Any, Any, R]],
        *,
        id: str | None = None,
        input: Any = ...,
        on_item_failure: Literal["fail"] | None = None,
        **options: Unpack[MapOptions],
    ) -> StepRef[list[R]]: ...
    @overload
    def map(
        self,
        task: Callable[..., R],
        *,
        id: str | None = None,
        input: Any = ...,
        on_item_failure: Literal["fail"] | None = None,
        **options: Unpack[MapOptions],
    ) -> StepRef[list[R]]: ...
    @overload
    def map(
        self,
        task: TaskLike | None = None,
        *,
        workflow: str | Workflow[Any] | None = None,
        id: str | None = None,
        input: Any = ...,
        on_item_failure: Literal["fail", "continue"] | None = None,
        **options: Unpack[MapOptions],
    ) -> StepRef[list[Any]]: ...
    def map(
        self, task: Any = None, *, workflow: Any = None, id: str | None = None, input: Any = NOT_GIVEN, **options: Any
    ) -> StepRef[Any]:
        """A task, or a run of another workflow, for each element of an array; `item` and `index` may be in `input`.
        The output is the array of the outputs."""
        by = None if task is None else target(task)
        config, rest = divided({**options, "workflow": name_of(workflow)}, MapOptions)
        if (named := id or (by.name if by else name_of(workflow))) is None:
            raise Invalid("a map needs a task, or a workflow")
        element = Any if by is None or config.get("on_item_failure") == "continue" else by.output
        found = draft(named, {**rest, "with": input}, kind="map", by=by, config=config)
        return self._add(found, list[element])  # type: ignore[valid-type]

    def http(self, id: str, *, url: Any, **options: Unpack[HttpOptions]) -> StepRef[HttpOutput]:
        """A step that sends one HTTP request. `request_timeout` is of one request, `timeout` of an attempt."""
        config, rest = divided({**options, "url": url}, HttpOptions, request_timeout="timeout")
        return self._add(draft(id, rest, kind="http", config=config), HttpOutput)

    # What the service does by itself.

    @overload
    def sub_workflow(
        self,
        workflow: str | Workflow[Any],
        *,
        output: type[Out],
        id: str | None = None,
        input: Any = ...,
        **options: Unpack[ChildOptions],
    ) -> StepRef[Out]: ...
    @overload
    def sub_workflow(
        self, workflow: str | Workflow[Any], *, id: str | None = None, input: Any = ..., **options: Unpack[ChildOptions]
    ) -> StepRef[Any]: ...
    def sub_workflow(
        self, workflow: Any, *, id: str | None = None, input: Any = NOT_GIVEN, output: Any = Any, **options: Any
    ) -> StepRef[Any]:
        """A step that starts a run of another workflow, and has its output; with `detach` it has `run_id` at once."""
        config, rest = divided({**options, "workflow": name_of(workflow)}, ChildOptions)
        found = draft(id or name_of(workflow), {**rest, "with": input}, kind="sub_workflow", config=config)
        return self._add(found, output)

    def approval(self, id: str, **options: Unpack[ApprovalOptions]) -> StepRef[ApprovalOutput]:
        """A step that waits for the decision of a person. `question` and `details` are the `description` and the
        `metadata` of the request, not of the step."""
        config, rest = divided(options, ApprovalOptions, question="description", details="metadata")
        return self._add(draft(id, rest, kind="approval", config=config), ApprovalOutput)

    def sleep(self, id: str, **options: Unpack[SleepOptions]) -> StepRef[None]:
        """A step that waits for a time: a `duration`, or `until` then (RFC 3339, or milliseconds since 1970)."""
        config, rest = divided(options, SleepOptions)
        return self._add(draft(id, rest, kind="sleep", config=config), None)

    @overload
    def wait_for_event(
        self, id: str, *, event: str, output: type[Out], **options: Unpack[WaitOptions]
    ) -> StepRef[Out]: ...
    @overload
    def wait_for_event(self, id: str, *, event: str, **options: Unpack[WaitOptions]) -> StepRef[Any]: ...
    def wait_for_event(self, id: str, *, event: str, output: Any = Any, **options: Any) -> StepRef[Any]:
        """A step that waits for an event from outside of the run, whose body is its output."""
        config, rest = divided({**options, "event": event}, WaitOptions)
        return self._add(draft(id, rest, kind="wait_for_event", config=config), output)

    def respond(self, id: str = "respond", **options: Unpack[RespondOptions]) -> StepRef[Any]:
        """A step that answers whoever called the run, while the run goes on."""
        config, rest = divided(options, RespondOptions)
        return self._add(draft(id, rest, kind="respond", config=config), Any)

    # The definition.

    def definition(self) -> dict[str, Any]:
        """The definition, as its JSON has it. Raises Invalid with every problem, each with its step and field."""
        from penstock.engine.validation import parse

        document = {"name": self.name, **self._fields, "steps": with_dependencies(list(self._drafts.values()))}
        parse(document)
        written: dict[str, Any] = orjson.loads(orjson.dumps(document))
        return written

    def to_json(self) -> bytes:
        """The definition as JSON that people can read, as `penstock workflow register` takes it."""
        return orjson.dumps(self.definition(), option=orjson.OPT_INDENT_2)

    def lint(self) -> list[LintFinding]:
        """What is valid and probably not meant, each with the reason and what to do. Raises Invalid with every
        problem."""
        from penstock.authoring.linting import findings
        from penstock.engine.validation import parse

        silent = {found.id for found in self._drafts.values() if found.tasks and _is_silent(found)}
        return findings(parse(self.definition()), silent)

    @staticmethod
    def from_definition(definition: Mapping[str, Any] | bytes | str) -> Workflow[Any]:
        """The workflow in a definition: its `definition()` is the same again, and steps can be added. Raises Invalid
        with every problem."""
        from penstock.engine.validation import parse

        document = definition_document(definition)
        parse(document)
        flow = Workflow(document.pop("name"))
        for step in document.pop("steps"):
            flow._drafts[step["id"]] = Draft(step["id"], step, [], [])
        flow._fields = document
        return flow

    def _add(self, found: Draft, output: Any) -> StepRef[Any]:
        if found.id in self._drafts:
            raise Invalid(f"step {quoted(found.id)} is there already: give one of them another `id`")
        for task in found.tasks:
            known = self.tasks.setdefault(task.name, task)
            if known.function is not task.function:
                raise Invalid(f"step {quoted(found.id)}: another function is task {quoted(task.name)} already")
        self._drafts[found.id] = found
        return StepRef(found.id, output)


def _is_silent(found: Draft) -> bool:
    """Whether the function that carries it out returns nothing."""
    name = found.document.get("task")
    return any(task.name == name and task.output in (None, type(None)) for task in found.tasks)


def _output(by: Target, output: Any) -> Any:
    return by.output if output is None else output
