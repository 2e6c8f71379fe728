"""Runs in the test kit: each kind of step, and what happens when steps fail, take long, or are called off."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import Workflow, task
from penstock.engine.errors import CallFailed, Conflict, Invalid, NotFound
from penstock.testing import (
    TestService,
    assert_attempts,
    assert_completed,
    assert_failed,
    assert_happened,
    assert_steps,
    assert_waits,
)
from penstock.worker import BlockingContext, Context, Continue, NonRetriable, Pause, RetryAfter, TaskCancelled

RETRY = {"max_attempts": 2, "strategy": "exponential", "initial_delay": "10s"}


def one(**fields: Any) -> dict[str, Any]:
    """A workflow with one step, `s`, of the task type `t` unless the fields say otherwise."""
    step = {"id": "s", **fields}
    return {
        "name": "one",
        "steps": [step if "type" in step and step["type"] != "agent_loop" else {"task": "t", **step}],
    }


def echo(value: Any) -> Any:
    return value


@dataclass
class Order:
    lines: list[int]


@task(retries=2)
def charge(order: Order) -> int:
    return sum(order.lines)


@task
async def thank(total: int) -> str:
    await asyncio.sleep(3600)
    return f"thanks for {total}"


def test_a_workflow_in_python_brings_its_functions_and_their_types_along() -> None:
    flow = Workflow("order", input=Order)
    flow.step(thank, after=flow.step(charge))
    with TestService() as service:
        run = service.start(flow, Order([1, 2]))
        assert_waits(run, "thank")
        service.advance("1h")
        assert_completed(run, "thanks for 3")


def test_a_function_that_is_async_takes_no_time_to_sleep_also_in_an_async_test() -> None:
    async def test() -> str:
        with TestService(tasks={"t": thank}) as service:
            return str(service.start(one(), 1).result())

    assert asyncio.run(test()) == "thanks for 1"


def test_thirty_days_of_sleep_are_over_when_the_test_says_so() -> None:
    with TestService(now="2026-03-01T00:00:00Z") as service:
        run = service.start(one(type="sleep", config={"duration": "720h"}))
        service.advance("29d")
        assert run.status == "running"
        service.advance("1d")
        assert run.status == "completed"
        assert service.now == "2026-03-31T00:00:00.000000Z"
        assert run.step("s").finished_at == service.now


def test_a_scripted_failure_is_retried_after_its_delay() -> None:
    with TestService(tasks={"t": echo}) as service:
        service.fail("s", "no luck", times=2)
        run = service.start(one(retry=RETRY), 7)
        service.advance("20s")  # the delays are 10 s and 20 s, a tenth more or less
        assert_attempts(run, "s", 2)
        service.advance("13s")
        assert_completed(run, 7)
        assert_attempts(run, "s", 3)
        assert_happened(run, "step.failed s", "timer.fired retry.s", "step.started s", "step.completed s")


def test_what_a_function_raises_decides_about_the_retry() -> None:
    errors: list[Exception] = [ValueError("first"), RetryAfter(60, "later"), NonRetriable("never")]

    def fails(_: object) -> None:
        raise errors.pop(0)

    with TestService(tasks={"t": fails}) as service:
        run = service.start(one(retries=5))
        service.advance("2m")
        assert_failed(run, "never", step="s")
        assert [event.payload["error"] for event in run.events if event.type == "step.failed"] == [
            "ValueError: first", "later", "never",
        ]  # fmt: skip
        assert [(one.task, one.attempt, one.error) for one in service.dead_letters] == [("t", 3, "never")]


def test_a_failed_run_goes_on_where_it_failed() -> None:
    with TestService(tasks={"t": echo}) as service:
        service.fail("t", times=1)
        run = service.start(one(retries=0), 1)
        assert_failed(run, "scripted failure")
        run.retry()
        assert_completed(run, 1)
        assert service.dead_letters == []


def test_a_timeout_ends_an_attempt_that_takes_long_and_its_late_answer_counts_for_nothing() -> None:
    calls: list[int] = []
    with TestService(tasks={"t": lambda value: calls.append(value) or len(calls)}) as service:
        service.delay("s", "30s", times=1)
        run = service.start(one(timeout="5s", retries=1), 0)
        service.advance("1m")
        assert_completed(run, 2)
        assert_happened(run, "timer.fired timeout.s", "step.completed s")


def test_a_task_of_a_worker_that_dies_is_delivered_again() -> None:
    with TestService(tasks={"t": echo}) as service:
        service.lose("t")
        run = service.start(one(), 1)
        service.advance("29s")
        assert run.status == "running"
        service.advance("1s")
        assert_completed(run, 1)
        assert [(event.type, event.delivery) for event in run.events[1:-1]] == [
            ("step.started", 1),
            ("step.completed", 2),
        ]
        assert_attempts(run, "s", 1)


def test_a_duplicated_task_is_carried_out_twice_and_counts_once() -> None:
    calls: list[int] = []
    with TestService(tasks={"t": lambda value: calls.append(value)}) as service:
        service.duplicate("s", after="1m")
        run = service.start(one(), 3)
        assert_completed(run)
        service.advance("1m")
        assert calls == [3, 3]
        assert run.status == "completed"


def test_an_answer_replaces_the_function() -> None:
    with TestService() as service:
        service.answer("s", lambda value: value + 1, times=1)
        service.answer("s", KeyError("gone"))
        assert service.start(one(), 1).output == 2
        assert_failed(service.start(one(retries=0), 1), "KeyError: 'gone'")


def test_a_task_without_a_function_waits_and_the_output_says_so() -> None:
    with TestService() as service:
        run = service.start(one(), 1)
        with pytest.raises(Conflict, match='no function is there for "t"'):
            run.result()
        service.task("t", echo)
        assert run.output == 1


def test_a_signal_lets_functions_go_on_that_wait_for_it() -> None:
    async def waits(_: object, ctx: Context) -> Any:
        return await ctx.wait_signal("go")

    def blocks(_: object, ctx: BlockingContext) -> Any:
        ctx.checkpoint({"at": 1})
        ctx.log("waiting", n=1)
        try:
            return ctx.wait_signal("stop", timeout_s=60)
        except TimeoutError:
            return [ctx.load_checkpoint(), ctx.attempt]

    flow = {"name": "both", "steps": [{"id": "a", "task": "waits"}, {"id": "b", "task": "blocks"}]}
    with TestService(tasks={"waits": waits, "blocks": blocks}) as service:
        run = service.start(flow)
        service.advance("1h")
        assert_steps(run, a="running", b="completed")
        run.signal("go", {"n": 1})
        assert_completed(run, {"a": {"n": 1}, "b": [{"at": 1}, 1]})
        assert_happened(run, "step.completed b", "signal.received", "step.completed a")
        assert [line["text"] for line in run.said("b")] == ["waiting"]


def test_a_cancelled_run_cancels_its_functions() -> None:
    ended: list[str] = []

    async def waits(_: object) -> None:
        try:
            await asyncio.sleep(1e6)
        finally:
            ended.append("waits")

    def blocks(_: object, ctx: BlockingContext) -> None:
        try:
            ctx.wait_signal("never")
        except TaskCancelled as error:
            ended.append(str(error))
            raise

    flow = {"name": "both", "steps": [{"id": "a", "task": "waits"}, {"id": "b", "task": "blocks"}]}
    with TestService(tasks={"waits": waits, "blocks": blocks}) as service:
        run = service.start(flow)
        run.cancel("enough")
        assert run.status == "cancelled"
        assert len(ended) == 2
        with pytest.raises(CallFailed, match="was cancelled: enough"):
            _ = run.output
        with pytest.raises(Conflict, match="cancelled already"):
            run.cancel()


def test_a_loop_and_a_pause_go_on_later() -> None:
    paused: list[int] = []

    def loops(value: int) -> Any:
        return Continue(value + 1) if value < 3 else value

    def pauses(value: Any, ctx: Context) -> Any:
        if not paused:
            paused.append(1)
            raise Pause(60, {"seen": value})
        return ctx.deliveries

    loop = {"id": "loop", "type": "agent_loop", "task": "loops", "config": {"max_iterations": 9}}
    flow = {"name": "both", "steps": [loop, {"id": "wait", "task": "pauses", "depends_on": ["loop"]}]}
    with TestService(tasks={"loops": loops, "pauses": pauses}) as service:
        run = service.start(flow, 0)
        assert_steps(run, loop="completed", wait="running")
        service.advance("1m")
        assert_completed(run, 2)
        assert run.checkpoints == {"wait": {"seen": 3}}


def test_people_decide_approvals_and_time_does() -> None:
    flow = one(type="approval", config={"timeout": "1h"})
    with TestService() as service:
        granted, rejected, expired = (service.start(flow) for _ in range(3))
        granted.approve(by="Ada")
        rejected.reject("s", comment="no")
        assert_completed(granted, {"approved_by": "Ada"})
        assert_failed(rejected, "rejected: no")
        with pytest.raises(Conflict, match="none"):
            granted.approve()
        service.advance("1h")
        assert_failed(expired, "approval expired")


def test_a_step_waits_for_the_event_that_it_names() -> None:
    wait = {"event": "paid", "correlate": {"field": "order", "value": "${{ input.order }}"}, "match": "event.total > 5"}
    flow = one(type="wait_for_event", config={**wait, "timeout": "1h"})
    with TestService() as service:
        run, late = service.start(flow, {"order": 7}), service.start(flow, {"order": 8})
        for body in ({"order": 9, "total": 9}, {"order": 7, "total": 1}, {"order": 7, "total": 9}, {}):
            service.send_event("paid", body)
        assert_completed(run, {"order": 7, "total": 9})
        service.advance("1h1s")
        assert_failed(late, "no event paid came within 1h")


def test_children_run_and_their_failure_is_that_of_the_step() -> None:
    parent = one(type="sub_workflow", config={"workflow": "child"})
    child = {**one(retries=0), "name": "child"}
    with TestService(child, parent, tasks={"t": echo}) as service:
        run = service.start(parent, [1])
        assert_completed(run, [1])
        assert [found.workflow for found in run.children] == ["child"]
        service.fail("t", "child broke")
        assert_failed(service.start("one", 1), "child broke")
        with pytest.raises(NotFound, match='workflow "nobody" is not registered: there is "child", "one"'):
            service.start("nobody")


def test_a_map_has_an_element_for_each_item() -> None:
    mapped = one(type="map", task="t", config={"items": "${{ input }}", "max_concurrency": 2}, retries=1)
    with TestService(tasks={"t": lambda value: value * 2}) as service:
        service.fail("s.1", times=1)
        run = service.start(mapped, [1, 2, 3])
        assert run.result() == [2, 4, 6]
        assert run.step("s.1").output == 4
        assert run.step("s.1").attempts == 2


def test_steps_are_undone_in_reverse() -> None:
    undone: list[Any] = []
    flow = {
        "name": "saga",
        "steps": [
            {"id": "a", "task": "t", "compensate": {"task": "undo"}},
            {"id": "b", "task": "t", "depends_on": ["a"], "compensate": {"task": "undo"}},
            {"id": "c", "task": "t", "depends_on": ["b"], "retries": 0},
        ],
    }
    with TestService(tasks={"t": echo, "undo": lambda value: undone.append(value)}) as service:
        service.fail("c")
        run = service.start(flow, 1)
        assert_failed(run, step="c")
        assert undone == [{"input": 1, "output": 1}] * 2
        assert_happened(run, "workflow.compensating", "step.completed b.compensate", "step.completed a.compensate")


def test_a_planner_inserts_steps() -> None:
    plan = {"steps": [{"id": "x", "task": "t"}, {"id": "y", "task": "t", "depends_on": ["x"]}]}
    flow = {"name": "planned", "steps": [{"id": "p", "type": "planner", "task": "plan", "config": {}}]}
    with TestService(tasks={"plan": lambda _: plan, "t": echo}) as service:
        run = service.start(flow, 5)
        assert_completed(run, 5)
        assert "planner.expanded p" in [event.about for event in run.events]


def test_an_http_step_is_answered_by_a_function() -> None:
    flow = one(type="http", config={"url": "https://shop.example/${{ input.id }}", "method": "GET"})
    with TestService(http=lambda request: {"status": 200, "headers": {}, "body": request["url"]}) as service:
        assert service.start(flow, {"id": 4}).output["body"] == "https://shop.example/4"


def test_a_paused_run_begins_nothing_new() -> None:
    flow = {"name": "two", "steps": [{"id": "a", "type": "sleep", "config": {"duration": "1m"}},
                                     {"id": "b", "task": "t", "depends_on": ["a"]}]}  # fmt: skip
    with TestService(tasks={"t": echo}) as service:
        run = service.start(flow)
        run.pause()
        service.advance("1h")
        assert run.paused
        assert_steps(run, b="pending")
        run.resume()
        service.advance("1h")
        assert_completed(run)


def test_conditions_inputs_and_labels_are_evaluated() -> None:
    flow = one(**{"with": {"n": "${{ input.n + 1 }}", "by": "${{ run.labels.team }}"}, "when": "input.n > 0"})
    with TestService(tasks={"t": echo}) as service:
        assert service.start(flow, {"n": 1}, labels={"team": "red"}).output == {"n": 2, "by": "red"}
        assert_steps(service.start(flow, {"n": 0}), s="skipped")


def test_a_run_starts_at_its_time() -> None:
    with TestService(tasks={"t": echo}, now="2026-01-01T00:00:00Z") as service:
        run = service.start(one(), 1, run_at="2026-01-02T00:00:00Z")
        assert run.status == "scheduled"
        service.advance_to("2026-01-02T00:00:00Z")
        assert_completed(run, 1)
        with pytest.raises(Invalid, match="time goes forward"):
            service.advance_to("2026-01-01T00:00:00Z")


def test_another_run_follows_from_a_failure() -> None:
    flow = {**one(retries=0), "on_failure": {"workflow": "after"}}
    after = {"name": "after", "steps": [{"id": "alert", "task": "alert"}]}
    with TestService(after, tasks={"alert": lambda value: value["error"]}) as service:
        service.fail("t", "broken")
        assert_failed(service.start(flow))
        assert [run.output for run in service.runs if run.workflow == "after"] == ['step "s" failed: broken']


@pytest.mark.parametrize("duration", ["3 weeks", -1, float("inf"), "d"])
def test_a_duration_that_is_none_is_named(duration: Any) -> None:
    with TestService() as service, pytest.raises(Invalid):
        service.advance(duration)


def test_an_input_is_checked_by_the_schema() -> None:
    with TestService() as service, pytest.raises(Invalid, match="input"):
        service.start({**one(), "input_schema": {"type": "object"}}, 3)
