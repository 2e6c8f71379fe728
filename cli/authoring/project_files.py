"""What `penstock init` writes."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version

INPUT = '{"id": "o-1", "prices": [3, 4.5]}'

APP = '''\
"""An order is priced, and then confirmed."""

from dataclasses import dataclass

from penstock import Workflow, task


@dataclass
class Order:
    id: str
    prices: list[float]


@dataclass
class Bill:
    order: str
    total: float


@task(retries=3, timeout="30s")
def price(order: Order) -> Bill:
    return Bill(order.id, sum(order.prices))


@task
def confirm(bill: Bill) -> str:
    return f"order {bill.order}: {bill.total:.2f}"


flow = Workflow("order", input=Order)
priced = flow.step(price, input=flow.input)
flow.step(confirm, input=priced.output)

if __name__ == "__main__":
    from penstock.worker import Worker

    Worker(workflows=[flow]).run()
'''

TEST = """\
from app import Bill, Order, confirm, flow, price

from penstock.testing import TestService, assert_attempts

ORDER = {"id": "o-1", "prices": [3, 4.5]}


def test_a_task_is_a_function():
    assert price(Order("o-1", [3, 4.5])) == Bill("o-1", 7.5)
    assert confirm(Bill("o-1", 7.5)) == "order o-1: 7.50"


def test_an_order_is_priced_and_confirmed():
    with TestService(flow) as service:
        assert service.start(flow, ORDER).output == "order o-1: 7.50"


def test_a_price_that_fails_is_asked_for_again():
    with TestService(flow) as service:
        service.fail("price", "no connection")
        run = service.start(flow, ORDER)
        assert run.status == "running"
        service.advance("1m")
        assert run.output == "order o-1: 7.50"
        assert_attempts(run, "price", 2)
"""

README = """\
# {name}

A workflow, `order`, and the functions of its steps (`app.py`), with tests of both (`test_app.py`).

    pip install -r requirements.txt
    python -m pytest

The tests need no service: they run the workflow in memory, on a clock that jumps.

    penstock dev app.py

runs a service and the functions, and prints the address of its console. Leave it running: what you change is loaded
when you save it. In another terminal, this starts a run and prints its output:

    penstock workflow call order --input '{input}'

Where a service is running, `python app.py` registers the workflow there and works for it; `SERVICE_URL` and
`SERVICE_BROKER_URL` are the addresses of the service and of its broker.
"""

REQUIREMENTS = """\
penstock[watch] >= {version}
pytest >= 8
"""

IGNORED = """\
.venv/
__pycache__/
.pytest_cache/
penstock-data/
"""


def project_files(name: str) -> Mapping[str, str]:
    """The texts by the names of their files; `name` is that of the project."""
    return {
        "app.py": APP,
        "test_app.py": TEST,
        "README.md": README.format(name=name, input=INPUT),
        "requirements.txt": REQUIREMENTS.format(version=version("penstock")),
        ".gitignore": IGNORED,
    }
