"""The garbage collector beside imports."""

from __future__ import annotations

import gc

import pytest

from penstock.config.process.memory import uncollected


def test_no_garbage_is_collected_within_the_block_only() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_in_the_block_switches_the_collector_on_again() -> None:
    with pytest.raises(ImportError), uncollected():
        raise ImportError
    assert gc.isenabled()
