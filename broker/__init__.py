"""The broker: the only folder that imports its client. No type of the client leaves it.

Rooms: nats/ has one connection and the ways to publish, pull and read, and knows no subject of the service; streams/
has a small class for each stream (history, task queues, dead letters, schedules); records/ has one for each key-value
bucket; archive/ has runs that ended long ago; triggers/ has what triggers consume; worker_protocol/ has what both
worker transports share; embedded/ runs nats-server as a child process. names.py builds every subject, stream, bucket
and consumer, record_keys.py every key in a bucket, message_ids.py every message id; store.py opens all of them for one
process; worker_messages.py has the messages between the service and its workers; far_events.py finds what came
long before a run's last event.

Not here: what events mean (engine/run). Start reading at names.py, then streams/history.py.
"""
