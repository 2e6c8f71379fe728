"""The client of the HTTP API: for Python programs, the command line and scripts.

client.py has one method per thing to ask; connection.py translates errors; views.py is what the API shows.

Not here: anything of the service but engine/ and config/. Start reading at client.py.
"""
