"""Telemetry of one process: the table of metrics, the numbers that grow where things happen, the warnings of its log.

metrics.py is the table; meters.py counts; warnings.py keeps what was logged for whoever passes it on.

Not here: how telemetry leaves the process (broker/streams/telemetry.py, actors/telemetry), how it is shown
(http/system). It imports nothing of ours. Start reading at metrics.py.
"""
