"""Print a run's history with only a NATS client: from its first event, then live until the run has ended.

python follow_run.py RUN_ID           from the beginning, with a consumer on the history; needs JetStream
python follow_run.py --live RUN_ID    from now on, without a consumer: cheaper, but a lost message is not sent again
"""

import asyncio
import json
import os
import sys

import nats

ENDS = ("workflow.completed", "workflow.failed", "workflow.cancelled")


async def main(run_id: str, live: bool) -> None:
    broker = await nats.connect(os.environ.get("SERVICE_BROKER_URL", "nats://127.0.0.1:4222"))
    if live:
        messages = await broker.subscribe(f"watch.{run_id}")
    else:  # stored under history.<partition>.<run_id>: the consumer's filter names any partition
        messages = await broker.jetstream().subscribe(
            f"history.*.{run_id}", stream="WORKFLOW_HISTORY", ordered_consumer=True
        )
    await broker.flush()
    print("following", run_id, file=sys.stderr, flush=True)
    async for message in messages.messages:
        event = json.loads(message.data)
        sequence = message.headers["Nats-Sequence"] if live else message.metadata.sequence.stream
        print(sequence, event["timestamp"], event["type"], event.get("step_id", ""), flush=True)
        if event["type"] in ENDS:
            break
    await broker.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1], "--live" in sys.argv))
