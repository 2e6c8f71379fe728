"""A worker in ten lines. Its task type is `hello`: register examples/hello.json, start a run of it, watch this
answer."""

from penstock.worker import Worker

worker = Worker()


@worker.task("hello")
def hello(name: str) -> dict[str, str]:
    return {"greeting": f"Hello, {name}!"}


if __name__ == "__main__":
    worker.run()
