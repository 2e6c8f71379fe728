"""The pytest plugin: the fixture `penstock_service`. Loaded with every pytest, so it imports nothing by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.service import TestService


@pytest.fixture
def penstock_service() -> Iterator[TestService]:
    """A service in memory, for one test. Functions that still wait for something are cancelled when it ends."""
    from penstock.testing.service import TestService

    with TestService() as service:
        yield service
