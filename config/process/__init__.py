"""What every process of the service needs of its own: background tasks, crash points of tests, ports, notices, bounded
logging.

Not here: settings. Start reading at background.py.
"""
