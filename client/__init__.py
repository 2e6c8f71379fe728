"""The client of the HTTP API: for Python programs, the command line and scripts.

client.py has one method for each operation; connection.py translates errors; views.py has the structs of the answers.

Not here: anything of the service but engine/ and config/. Start reading at client.py.
"""
