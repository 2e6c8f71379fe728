"""Signatures of webhooks: made here as their senders make them, by the words of their documentation."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from penstock.config.limits import WEBHOOK_AGE_S_MAX
from penstock.engine.trigger.signatures import (
    PLAIN,
    SLACK,
    STANDARD,
    STRIPE,
    SVIX,
    Header,
    Signed,
    delivery_id,
    signed_by,
)

BODY = b'{"a": 1}\n'
NOW = 1_800_000_000.0
KEY = b"\x00\x01\xfe\xff key"
ENCODED = "whsec_" + base64.b64encode(KEY).decode()


def headers(**given: str) -> Header:
    found = {name.lower().replace("_", "-"): value for name, value in given.items()}
    return lambda name: found.get(name.lower())


def is_signed(secret: str, header: Header, body: bytes, now: float) -> bool:
    return signed_by(secret, header, body, now) is not None


def in_hex(secret: bytes, body: bytes = BODY) -> str:
    return "sha256=" + hmac.digest(secret, body, "sha256").hex()


def standard(key: bytes, message_id: str = "msg_1", timestamp: str = "1800000000", body: bytes = BODY) -> str:
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def by_standard(signature: str, message_id: str = "msg_1", timestamp: str = "1800000000") -> Header:
    return headers(webhook_id=message_id, webhook_timestamp=timestamp, webhook_signature=signature)


@pytest.mark.parametrize("name", ["x_signature_256", "x_hub_signature_256"])
def test_a_hex_signature_of_the_raw_body_is_right_and_any_other_is_not(name: str) -> None:
    assert is_signed("s3cret", headers(**{name: in_hex(b"s3cret")}), BODY, NOW)
    assert is_signed("s3cret", headers(**{name: in_hex(b"s3cret").upper()}), BODY, NOW)
    for wrong in (
        "",
        "sha256=",
        in_hex(b"other"),
        in_hex(b"s3cret", BODY.strip()),
        in_hex(b"s3cret")[7:],
        in_hex(b"s3cret")[:-1],
        "ü",
    ):
        assert not is_signed("s3cret", headers(**{name: wrong}), BODY, NOW)


def test_without_any_signature_nothing_is_signed() -> None:
    assert not is_signed("s3cret", headers(), BODY, NOW)


def test_githubs_own_example_is_right() -> None:
    signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert is_signed("It's a Secret to Everybody", headers(x_hub_signature_256=signature), b"Hello, World!", NOW)


def test_the_example_of_standard_webhooks_is_right() -> None:
    header = headers(
        webhook_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        webhook_timestamp="1614265330",
        webhook_signature="v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    )
    assert is_signed("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", header, b'{"test": 2432232314}', 1614265330)


def test_an_encoded_secret_stands_for_its_bytes_and_a_plain_one_for_itself() -> None:
    assert is_signed(ENCODED, by_standard(standard(KEY)), BODY, NOW)
    assert is_signed("plain", by_standard(standard(b"plain")), BODY, NOW)
    assert is_signed("whsec_~", by_standard(standard(b"whsec_~")), BODY, NOW)
    assert not is_signed(ENCODED, by_standard(standard(ENCODED.encode())), BODY, NOW)


def test_one_of_several_signatures_is_enough_and_other_versions_count_for_nothing() -> None:
    right = standard(KEY)
    assert is_signed(ENCODED, by_standard(f"v1,AAAA v1a,BBBB {right}"), BODY, NOW)
    assert not is_signed(ENCODED, by_standard(right.replace("v1,", "v2,")), BODY, NOW)


@pytest.mark.parametrize(
    "header",
    [
        by_standard(standard(KEY), message_id="msg_2"),
        by_standard(standard(KEY), timestamp="1800000001"),
        by_standard(standard(KEY, timestamp="soon"), timestamp="soon"),
        by_standard(standard(KEY, timestamp="-1800000000"), timestamp="-1800000000"),
        headers(webhook_id="msg_1", webhook_signature=standard(KEY)),
        headers(webhook_timestamp="1800000000", webhook_signature=standard(KEY)),
        headers(webhook_id="msg_1", webhook_timestamp="1800000000"),
    ],
)
def test_id_and_time_are_signed_too(header: Header) -> None:
    assert not is_signed(ENCODED, header, BODY, NOW)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_timestamp_may_be_five_minutes_off_and_not_more(sign: int) -> None:
    header = by_standard(standard(KEY))
    assert is_signed(ENCODED, header, BODY, NOW + sign * WEBHOOK_AGE_S_MAX)
    assert not is_signed(ENCODED, header, BODY, NOW + sign * (WEBHOOK_AGE_S_MAX + 1))


SLACK_BODY = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
    b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
)
SLACK_HEADERS = {
    "x_slack_request_timestamp": "1531420618",
    "x_slack_signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
}


def test_slacks_own_example_is_right() -> None:
    secret, at = "8f742231b10e8888abcd99yyyzzz85a5", 1531420618.0
    assert Signed(SLACK, "1531420618") == signed_by(secret, headers(**SLACK_HEADERS), SLACK_BODY, at)
    assert not is_signed(secret, headers(**SLACK_HEADERS), SLACK_BODY + b"x", at)
    assert not is_signed(secret, headers(**SLACK_HEADERS), SLACK_BODY, at + WEBHOOK_AGE_S_MAX + 1)
    assert not is_signed(
        secret, headers(**{**SLACK_HEADERS, "x_slack_request_timestamp": "1531420619"}), SLACK_BODY, at
    )
    for missing in SLACK_HEADERS:
        assert not is_signed(secret, headers(**{**SLACK_HEADERS, missing: ""}), SLACK_BODY, at)


def test_the_example_of_svix_is_right() -> None:
    given = {
        "svix_id": "msg_loFOjxBNrRLzqYUf",
        "svix_timestamp": "1731705121",
        "svix_signature": "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0=",
    }
    secret, body = "whsec_plJ3nmyCDGBKInavdOK15jsl", b'{"event_type":"ping","data":{"success":true}}'
    assert Signed(SVIX, "1731705121") == signed_by(secret, headers(**given), body, 1731705121)
    mixed = {
        "webhook_id": given["svix_id"],
        "webhook_timestamp": given["svix_timestamp"],
        "svix_signature": given["svix_signature"],
    }
    assert not is_signed(secret, headers(**mixed), body, 1731705121)


def by_stripe(secret: bytes, time: str = "1800000000", body: bytes = BODY) -> str:
    return f"t={time},v1=" + hmac.digest(secret, f"{time}.".encode() + body, "sha256").hex()


def stripe(value: str) -> Header:
    return headers(stripe_signature=value)


def test_stripe_signs_time_and_body_with_its_secret_as_it_is() -> None:
    """Stripe's secrets begin with whsec_, too, and stand for themselves."""
    assert Signed(STRIPE, "1800000000") == signed_by(ENCODED, stripe(by_stripe(ENCODED.encode())), BODY, NOW)
    assert not is_signed(ENCODED, stripe(by_stripe(KEY)), BODY, NOW)
    right = by_stripe(b"s")
    mac = right.partition("v1=")[2]
    for good in (
        right,
        f"{right},v0=00",
        f"t=1800000000,v1={'0' * 64},v1={mac}",
        f"v1={mac},t=1800000000",
        f"t=1800000000, v1={mac}",
    ):
        assert is_signed("s", stripe(good), BODY, NOW)
    for bad in (
        "",
        "t=",
        f"v1={mac}",
        f"t=1800000000,v0={mac}",
        f"t=1800000001,v1={mac}",
        f"t=1800000000,v1={mac[:-1]}",
        f"t=+1800000000,v1={mac}",
    ):
        assert not is_signed("s", stripe(bad), BODY, NOW)
    assert not is_signed("s", stripe(right), BODY + b" ", NOW)
    assert not is_signed("s", stripe("t=1800000000," + "v1=0," * 16 + f"v1={mac}"), BODY, NOW)


@pytest.mark.parametrize("sign", [1, -1])
def test_what_stripe_and_slack_sign_is_old_after_five_minutes(sign: int) -> None:
    slack = headers(
        x_slack_request_timestamp="1800000000",
        x_slack_signature="v0=" + hmac.digest(b"s", b"v0:1800000000:" + BODY, "sha256").hex(),
    )
    for header in (stripe(by_stripe(b"s")), slack):
        assert is_signed("s", header, BODY, NOW + sign * WEBHOOK_AGE_S_MAX)
        assert not is_signed("s", header, BODY, NOW + sign * (WEBHOOK_AGE_S_MAX + 1))


def test_no_dialect_keeps_a_signature_and_all_keep_lower_case() -> None:
    for dialect in (PLAIN, STANDARD, SVIX, STRIPE, SLACK):
        assert [] == [name for name in dialect.headers if "signature" in name or name != name.lower()]
        assert {*dialect.ids} <= {*dialect.headers}


def test_a_delivery_is_named_by_its_sender_else_by_its_time_and_bytes() -> None:
    none = headers()
    assert "d1" == delivery_id(Signed(PLAIN), headers(x_github_delivery="d1"), BODY, {"id": "x"})
    assert delivery_id(Signed(PLAIN), none, BODY, {"id": "x"}) is None
    assert "msg_1" == delivery_id(Signed(STANDARD, "1"), headers(webhook_id="msg_1"), BODY, {})
    assert "evt_1" == delivery_id(Signed(STRIPE, "1"), none, BODY, {"id": "evt_1"})
    assert "Ev1" == delivery_id(Signed(SLACK, "1"), none, BODY, {"event_id": "Ev1"})
    unnamed = {
        delivery_id(Signed(SLACK, time), none, body, value)
        for time in "12"
        for body in (BODY, b"")
        for value in ({}, [], {"event_id": 1})
    }
    assert 4 == len(unnamed - {None})
