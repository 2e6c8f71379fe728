"""The server between gunicorn and the application: uvicorn's, bounded and strict.

Start reading at worker.py, a process under gunicorn that stops in order; connection.py is what it makes of each
connection, and cut_off.py answers what is not answered in time. Not here: settings of the server (config/gunicorn.py),
and the application.
"""
