from __future__ import annotations

import pytest

from penstock.engine.access.scopes import EVERYBODY, Caller, KeyScope
from penstock.engine.errors import OutOfScope

READ, OPERATE, ADMIN = KeyScope
ORDERS = Caller("ada", OPERATE, "order-*")


@pytest.mark.parametrize(
    ("held", "allowed"), [(READ, {READ}), (OPERATE, {READ, OPERATE}), (ADMIN, {READ, OPERATE, ADMIN})]
)
def test_each_scope_includes_those_before_it(held: KeyScope, allowed: set[KeyScope]) -> None:
    assert allowed == {scope for scope in KeyScope if Caller("ada", held).may(scope)}


def test_a_refusal_names_the_scope_that_is_needed_and_the_key() -> None:
    with pytest.raises(OutOfScope, match='POST /workflows needs a key of scope admin: that of "ada" is operate'):
        ORDERS.check_scope(ADMIN, "POST /workflows")


@pytest.mark.parametrize(
    ("pattern", "seen"),
    [
        ("order-*", {"order-a", "order-", "order-a.b"}),
        ("order-a", {"order-a"}),
        ("*", {"order-a", "order-", "order-a.b", "border-a", "ORDER-a", "mail"}),
        ("*-a", {"order-a", "border-a", "ORDER-a"}),
    ],
)
def test_a_pattern_says_which_workflows_a_key_is_for(pattern: str, seen: set[str]) -> None:
    names = {"order-a", "order-", "order-a.b", "border-a", "ORDER-a", "mail"}
    assert seen == {name for name in names if Caller("ada", READ, pattern).sees(name)}


def test_a_key_for_some_workflows_is_refused_what_belongs_to_others_or_to_none() -> None:
    ORDERS.check_workflow("order-a")
    with pytest.raises(OutOfScope, match='the key "ada" is for the workflows order-\\*, not for "mail"'):
        ORDERS.check_workflow("mail")
    with pytest.raises(OutOfScope, match="GET /workers needs a key for all workflows"):
        ORDERS.check_whole("GET /workers")


def test_everybody_may_do_everything_while_the_api_is_open() -> None:
    EVERYBODY.check_scope(ADMIN, "x")
    EVERYBODY.check_workflow("mail")
    EVERYBODY.check_whole("x")
    assert EVERYBODY.name is None
