"""What users hand in: definitions, inputs, bulk files."""

from __future__ import annotations

import io
from pathlib import Path

import click
import pytest

from penstock.cli.terminal import documents
from penstock.config.limits import BODY_BYTES_MAX


class Named(io.BytesIO):
    def __init__(self, body: bytes, name: str) -> None:
        super().__init__(body)
        self.name = name


def test_definition_in_toml_becomes_json() -> None:
    assert b'{"name":"w","steps":[{"id":"a"}]}' == documents.definition(
        Named(b'name = "w"\n[[steps]]\nid = "a"', "w.toml")
    )


def test_definition_in_json_is_sent_as_it_is() -> None:
    assert b'{"name": "w" }' == documents.definition(Named(b'{"name": "w" }', "w.json"))


def test_definition_on_stdin_may_be_either() -> None:
    assert b'{"name":"w"}' == documents.definition(Named(b'name = "w"', "<stdin>"))
    assert b"{}" == documents.definition(Named(b"{}", "<stdin>"))


@pytest.mark.parametrize(
    ("body", "name", "said"),
    [
        (b"{", "w.json", "w.json is not JSON"),
        (b"a =", "w.toml", "w.toml is not TOML"),
        (b"{", "<stdin>", "<stdin> is not JSON"),
    ],
)
def test_broken_definition_is_refused(body: bytes, name: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        documents.definition(Named(body, name))


def test_input_is_an_argument_a_file_or_refused(tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_bytes(b"[1]")
    assert (b"7", b"[1]") == (documents.run_input("7"), documents.run_input(f"@{file}"))
    for bad in ("{", "@" + str(tmp_path / "no"), ""):
        with pytest.raises(click.BadParameter):
            documents.run_input(bad)


def test_bulk_file_is_an_array_or_json_lines() -> None:
    assert [b"1", b'{"a": 2}'] == documents.bulk_inputs(b' [1, {"a": 2}]\n')
    assert [b"1", b'{"a": 2}'] == documents.bulk_inputs(b'1\n\n{"a": 2}\n')
    assert [b"[1]", b"[2]"] == documents.bulk_inputs(b"[1]\n[2]\n")
    assert [] == documents.bulk_inputs(b"[]")


def test_broken_line_of_a_bulk_file_is_named() -> None:
    with pytest.raises(click.BadParameter, match="line 3 is not JSON"):
        documents.bulk_inputs(b"1\n\nx\n")


def test_bulk_requests_hold_a_thousand_runs_and_fit_into_a_body() -> None:
    assert [1000, 1000, 1] == [len(part) for part in documents.requests([b"1"] * 2001)]
    parts = list(documents.requests([b"x" * 2**20] * 20))
    assert 20 == sum(len(part) for part in parts)
    assert all(sum(len(item) + 1 for item in part) < BODY_BYTES_MAX for part in parts)
    assert [] == list(documents.requests([]))
