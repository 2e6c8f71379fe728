"""What every process of the service needs of its own: background tasks, crash points of tests, ports, notices, the
rate-limited log, names of files, an end when its parent ends.

Not here: settings. Start reading at background.py.
"""
