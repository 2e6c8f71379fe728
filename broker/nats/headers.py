"""Headers that the broker knows. Names of ours are built in names.py, which has these, too."""

from __future__ import annotations

MSG_ID = "Nats-Msg-Id"
EXPECT_SEQ = "Nats-Expected-Last-Subject-Sequence"
TTL = "Nats-TTL"
KV_OPERATION = "KV-Operation"
SCHEDULE = "Nats-Schedule"
SCHEDULE_TARGET = "Nats-Schedule-Target"
SCHEDULE_NEXT = "Nats-Schedule-Next"
SCHEDULER = "Nats-Scheduler"
