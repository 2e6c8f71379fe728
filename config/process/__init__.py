"""What every process of the service needs of its own: background tasks, crash points of tests, ports, notices, the
rate-limited log.

Not here: settings. Start reading at background.py.
"""
