"""What workers over HTTP say while they carry out a task: log lines, chunks, progress.

live_requests.py reads it, live_reports.py stores it, and cuts a task's flood.

Not here: which process does it for a task (../resolver.py). Start reading at live_requests.py.
"""
