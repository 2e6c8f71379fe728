"""The garbage collector beside imports."""

from __future__ import annotations

import gc

import pytest

from penstock.config.process.memory import seldom_collected, uncollected


def test_no_garbage_is_collected_within_the_block_only() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_an_error_in_the_block_switches_the_collector_on_again() -> None:
    with pytest.raises(ImportError), uncollected():
        raise ImportError
    assert gc.isenabled()


def test_what_is_there_is_not_looked_through_in_the_block() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.set_threshold(700, 10, 10)
    try:
        with seldom_collected():
            assert gc.get_threshold() == (20_000, 10, 10)
            assert gc.get_freeze_count() > frozen
        assert gc.get_threshold() == (700, 10, 10)
        assert gc.get_freeze_count() == 0
    finally:
        gc.set_threshold(*before)


def test_a_threshold_of_the_program_stays() -> None:
    before = gc.get_threshold()
    gc.set_threshold(5000, 10, 10)
    try:
        with seldom_collected():
            assert gc.get_threshold() == (5000, 10, 10)
    finally:
        gc.set_threshold(*before)
