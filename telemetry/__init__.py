"""Telemetry of one process: the table of metrics, the numbers themselves, the warnings of the process's log.

metrics.py is the table; meters.py counts; warnings.py keeps logged warnings until they are published, log_lines.py
passes all lines on; tracing.py is what a span is, otlp/ exports all of it.

Not here: how telemetry leaves the process (broker/streams/telemetry.py, actors/telemetry), how it is shown
(http/system). It imports nothing of the other folders. Start reading at metrics.py.
"""
