"""The worker of hello_worker.py over HTTP: it needs SERVICE_URL and SERVICE_BRIDGE_TOKEN, but no broker."""

from penstock.worker import Worker

worker = Worker(transport="bridge")


@worker.task("hello")
def hello(name: str) -> dict[str, str]:
    return {"greeting": f"Hello, {name}!"}


if __name__ == "__main__":
    worker.run()
