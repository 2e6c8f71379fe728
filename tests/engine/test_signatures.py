"""Signatures of webhooks: made here as their senders make them, by the words of their documentation."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest

from penstock.config.limits import WEBHOOK_AGE_S_MAX
from penstock.engine.signatures import Header, is_signed

BODY = b'{"a": 1}\n'
NOW = 1_800_000_000.0
KEY = b"\x00\x01\xfe\xff key"
ENCODED = "whsec_" + base64.b64encode(KEY).decode()


def headers(**given: str) -> Header:
    found = {name.lower().replace("_", "-"): value for name, value in given.items()}
    return lambda name: found.get(name.lower())


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
    for wrong in ("", "sha256=", in_hex(b"other"), in_hex(b"s3cret", BODY.strip()), in_hex(b"s3cret")[7:], in_hex(b"s3cret")[:-1], "ü"):
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
