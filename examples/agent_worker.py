"""An agent that streams what it thinks, word by word, calls a tool in each iteration, and then answers.

Its language model is a few rules, so that it needs no key: put a real one in `model`, which yields its tokens. Register
examples/agent.json, `penstock run start agent --input '"3 * 4 + 5"'`, and follow it: `penstock run stream ID`.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

from penstock.worker import Context, Continue, NonRetriable, Worker

worker = Worker()

WORD_S = 0.05
TOOLS = {"*": lambda a, b: a * b, "+": lambda a, b: a + b, "-": lambda a, b: a - b}


async def model(question: str, notes: list[str]) -> AsyncIterator[str]:
    """The tokens of the next thought: a tool to call, or the answer."""
    left = notes[-1].rpartition("= ")[2] if notes else question
    call = next((found for op in TOOLS if (found := re.search(rf"(-?\d+) (\{op}) (\d+)", left))), None)
    thought = f"I calculate {call[0]} first.\n" if call else f"The answer is {left}.\n"
    for word in re.findall(r"\S+\s*", thought):
        await asyncio.sleep(WORD_S)
        yield word


@worker.task("agent")
async def agent(state: Any, ctx: Context) -> Any:
    question, notes = (state, []) if isinstance(state, str) else (state["question"], state["notes"])
    thought = ""
    async for token in model(question, notes):
        ctx.stream(token)
        thought += token
    ctx.log("thought", iteration=ctx.iteration, words=len(thought.split()))
    if answer := re.search(r"The answer is (.*)\.", thought):
        return {"answer": answer[1], "steps": notes}
    a, op, b = re.findall(r"-?\d+|[*+-]", thought.removeprefix("I calculate "))[:3] or _unreadable(thought)
    left = notes[-1].rpartition("= ")[2] if notes else question
    after = left.replace(f"{a} {op} {b}", str(TOOLS[op](int(a), int(b))), 1)
    ctx.progress(ctx.iteration + 1, question.count(" ") // 2, "calculations")
    return Continue({"question": question, "notes": [*notes, f"{left} = {after}"]})


def _unreadable(thought: str) -> list[str]:
    raise NonRetriable(f"the model said what calls no tool: {thought!r}")


if __name__ == "__main__":
    worker.run()
