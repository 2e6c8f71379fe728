"""What the raw headers of stored messages say, and what they cannot be made to say."""

from __future__ import annotations

import pytest

from penstock.broker.nats.headers import EXPECT_SEQ, stored_behind

LINE = f"{EXPECT_SEQ}: 12"


@pytest.mark.parametrize(
    ("lines", "seq"),
    [
        ([LINE], 12),
        (["Nats-Msg-Id: a", LINE, "Other: 5"], 12),
        ([f"{EXPECT_SEQ}: 0"], 0),
        (["Nats-Msg-Id: a"], 0),
        ([f"Other: {LINE}"], 0),
        ([f"{EXPECT_SEQ}:5", LINE], 0),
        ([f"Other: a\n{EXPECT_SEQ}: 5", LINE], 0),
        ([LINE, f"{EXPECT_SEQ}-Subject: history.0.other"], 0),
        ([f"{EXPECT_SEQ}: -12"], 0),
        ([f"{EXPECT_SEQ}: 12 13"], 0),
    ],
)
def test_only_the_one_line_that_the_broker_has_checked_says_what_was_before(lines: list[str], seq: int) -> None:
    assert seq == stored_behind("\r\n".join(["NATS/1.0", *lines, "", ""]).encode())
