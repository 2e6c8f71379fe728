"""A worker in ten lines. Its task type is `hello`: register examples/hello.json and start a run of it."""

from penstock.worker import Worker

worker = Worker()


@worker.task("hello")
def hello(name: str) -> dict[str, str]:
    return {"greeting": f"Hello, {name}!"}


if __name__ == "__main__":
    worker.run()
