"""The options of steps and workflows, with the types that a checker and an editor use.

Their names are those of a definition's JSON (docs/workflows.md); `after` is `depends_on`, and `input` is `with`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

from penstock.authoring.references import StepRef

Duration: TypeAlias = str | int | timedelta  # text such as 30s, or nanoseconds as in JSON
Condition: TypeAlias = str | bool | Any  # an expression, or its text
TaskLike: TypeAlias = str | Callable[..., Any]
Predecessors: TypeAlias = StepRef[Any] | str | Sequence[StepRef[Any] | str]


class _Unset:
    """The type of NOT_GIVEN: None is an input like any other."""

    def __repr__(self) -> str:
        return "(not given)"


NOT_GIVEN: Any = _Unset()


class RetryPolicyOptions(TypedDict, total=False):
    max_attempts: int
    strategy: Literal["fixed", "linear", "exponential"]
    initial_delay: Duration
    max_delay: Duration
    multiplier: float


class ConcurrencyOptions(TypedDict, total=False):
    limit: int
    key: Any
    scope: str
    on_limit: Literal["queue", "skip", "replace"]
    fair_by: Any


class RateOptions(TypedDict, total=False):
    limit: int
    per: Duration
    burst: int
    key: Any
    scope: str


class SkipIfOptions(TypedDict):
    step_id: str
    field: str
    op: Literal["==", "!=", "<", "<=", ">", ">="]
    value: Any


class Correlate(TypedDict):
    field: str
    value: Any


class LimitOptions(TypedDict, total=False):
    """`concurrency` may be one limit, or a number: so many at a time."""

    concurrency: int | ConcurrencyOptions | Sequence[ConcurrencyOptions]
    rate_limit: RateOptions | Sequence[RateOptions]
    priority: Any


class TaskOptions(LimitOptions, total=False):
    """What a task may give to all its steps."""

    timeout: Duration
    retry: RetryPolicyOptions
    retries: int
    worker_group: str
    metadata: Mapping[str, str]
    description: str
    on_failure: HandlerTask | TaskLike
    compensate: HandlerTask | TaskLike


class CommonOptions(TypedDict, total=False):
    """What steps of every kind may have."""

    after: Predecessors
    when: Condition
    skip_if: SkipIfOptions
    metadata: Mapping[str, str]
    name: str
    description: str
    on_failure: HandlerTask | TaskLike
    compensate: HandlerTask | TaskLike


class AttemptOptions(CommonOptions, total=False):
    """What steps may have that are tried again."""

    timeout: Duration
    retry: RetryPolicyOptions
    retries: int


class WorkerOptions(AttemptOptions, LimitOptions, total=False):
    """What steps may have that workers carry out."""

    worker_group: str


class LoopOptions(WorkerOptions, total=False):
    max_iterations: int
    max_duration: Duration
    loop_delay: Duration


class PlannerOptions(WorkerOptions, total=False):
    allowed_tasks: Sequence[str]
    allowed_types: Sequence[str]
    max_steps: int
    max_depth: int


class MapOptions(WorkerOptions, total=False):
    """`version` and `labels` are for maps over a workflow."""

    items: Any
    max_items: int
    max_concurrency: int
    version: str
    labels: Mapping[str, Any]


class HttpOptions(WorkerOptions, total=False):
    method: Any
    headers: Mapping[str, Any]
    body: Any
    request_timeout: Any
    expect: Any


class ChildOptions(AttemptOptions, total=False):
    version: str
    detach: bool
    labels: Mapping[str, Any]


class ApprovalOptions(CommonOptions, total=False):
    timeout: Duration
    subject: str
    question: str
    details: Mapping[str, str]


class SleepOptions(CommonOptions, total=False):
    duration: Duration | Any
    until: str | datetime | Any


class WaitOptions(CommonOptions, total=False):
    correlate: Correlate
    match: Any
    timeout: Duration
    on_timeout: Literal["fail", "continue"]
    lookback: Duration


class RespondOptions(CommonOptions, total=False):
    status: Any
    headers: Mapping[str, Any]
    body: Any


class WorkflowOptions(LimitOptions, total=False):
    version: str
    description: str
    timeout: Duration
    default_retry: RetryPolicyOptions
    sticky: Literal["soft", "hard"]
    on_failure: FailureRun | str
    input_schema: Mapping[str, Any] | bool


class HandlerTask(NamedTuple):
    """A task that follows from the end of a step."""

    task: TaskLike
    document: Mapping[str, Any]


class FailureRun(NamedTuple):
    """A run that is started when a run has failed."""

    document: Mapping[str, Any]


def handler(
    task: TaskLike,
    *,
    input: Any = NOT_GIVEN,
    retry: RetryPolicyOptions | None = None,
    timeout: Duration | None = None,
    worker_group: str | None = None,
) -> HandlerTask:
    """A task for `on_failure` or `compensate` of a step; `default` in its input is what it would be given without."""
    return HandlerTask(task, given(**{"with": input}, retry=retry, timeout=timeout, worker_group=worker_group))


def failure_run(workflow: Any, *, input: Any = NOT_GIVEN, labels: Mapping[str, Any] | None = None) -> FailureRun:
    """For `on_failure` of a workflow: a run of another one, given by its name or itself."""
    return FailureRun(given(workflow=name_of(workflow), **{"with": input}, labels=labels))


def given(**options: Any) -> dict[str, Any]:
    """The options that are given; None is not, except as an input."""
    return {
        key: value
        for key, value in options.items()
        if value is not NOT_GIVEN and (value is not None or key in ("with", "body"))
    }


def name_of(workflow: Any) -> Any:
    """The name of a workflow that is given by its name or itself."""
    return workflow if isinstance(workflow, str) else getattr(workflow, "name", workflow)
