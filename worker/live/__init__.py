"""What a task function says while it runs: log lines, chunks, progress. Nothing here makes the function wait.

step_log.py is what a function logs with. outbox.py gathers lines or chunks and sends them, one message at a time;
progress_sender.py sends the latest progress. live_output.py is all three of one execution, and what the executions of a
worker share.

Not here: how a message reaches the service (../transports). Start reading at outbox.py.
"""
