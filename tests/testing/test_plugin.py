"""The pytest plugin of the test kit, as an installed distribution registers it."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from penstock.testing import TestService, assert_completed

pytest_plugins = ["pytester"]

FLOW = {"name": "f", "steps": [{"id": "s", "task": "t"}]}
USER_TEST = """
def test_a_flow(penstock_service):
    penstock_service.answer("t", 5)
    assert penstock_service.start({"name": "f", "steps": [{"id": "s", "task": "t"}]}).output == 5

def test_another_has_a_service_of_its_own(penstock_service):
    assert penstock_service.runs == []
"""


def test_the_fixture_is_a_service_in_memory(penstock_service: TestService) -> None:
    penstock_service.task("t", lambda value: value)

    assert_completed(penstock_service.start(FLOW, 1), 1)


def test_the_plugin_is_an_entry_point() -> None:
    assert [one.value for one in entry_points(group="pytest11", name="penstock")] == ["penstock.testing.plugin"]


def test_a_users_tests_find_the_fixture(pytester: pytest.Pytester, tmp_path: Path) -> None:
    pytester.makepyfile(USER_TEST)

    ran = pytester.runpytest_subprocess("-p", "no:cacheprovider")

    ran.assert_outcomes(passed=2)
