"""The worker of the console's tests: SERVICE_BROKER_URL says where. Its tasks do what their names say."""

from __future__ import annotations

from typing import Any

from penstock.worker import Context, NonRetriable, Worker

worker = Worker(max_tasks=20)


@worker.task("console.echo")
def echo(value: Any) -> Any:
    return value


@worker.task("console.list")
def listed(value: Any) -> list[int]:
    return list(range(40))


@worker.task("console.element")
def element(value: int) -> int:
    if value in (3, 17, 29):
        raise NonRetriable(f"element {value} is broken")
    return value


@worker.task("console.flaky")
def flaky(value: Any, ctx: Context) -> str:
    if ctx.attempt < 3:
        raise RuntimeError(f"attempt {ctx.attempt} has failed")
    return "third time lucky"


@worker.task("console.broken")
def broken(value: Any) -> None:
    raise NonRetriable("403 forbidden: the registry has refused")


@worker.task("console.deep")
def deep(value: Any) -> None:
    def deeper() -> None:
        raise ValueError("too deep")

    deeper()


@worker.task("console.says")
def says(value: Any) -> None:
    raise NonRetriable(f"it is {value}")


@worker.task("console.busy")
@worker.task("console.signalled")
async def signalled(value: Any, ctx: Context) -> Any:
    """Runs until a signal `go` comes, and says so."""
    ctx.log.info("waits for %s", "go")
    ctx.stream("tick ")
    found = await ctx.wait_signal("go")
    ctx.stream("done")
    return found


@worker.task("console.keeps")
async def keeps(value: Any, ctx: Context) -> Any:
    """Keeps where it is, says how far, and waits for a signal `go`."""
    await ctx.checkpoint({"page": 7})
    ctx.progress(3, 10)
    return await ctx.wait_signal("go")


if __name__ == "__main__":
    worker.run()
