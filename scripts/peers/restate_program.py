"""Two services of Restate: `hypercorn peers.restate_program:app`, in the folder scripts/."""

from __future__ import annotations

import restate

steps, chain = restate.Service("Steps"), restate.Service("Chain")
Value = dict[str, int]


def echo(value: Value) -> Value:
    return value


@steps.handler("echo")
async def echo_of_its_own(context: restate.Context, value: Value) -> Value:
    return echo(value)


@chain.handler("run")
async def run(context: restate.Context, value: Value) -> Value:
    """Three steps in the process of the handler; the journal has the result of each."""
    for step in ("s1", "s2", "s3"):
        value = await context.run_typed(step, echo, value=value)
    return value


@chain.handler("call")
async def call(context: restate.Context, value: Value) -> Value:
    """Three steps that are calls, which any process of their service may answer."""
    for _ in range(3):
        value = await context.service_call(echo_of_its_own, arg=value)
    return value


app = restate.app(services=[steps, chain])
