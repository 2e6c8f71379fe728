"""What a client does when a request or a stream does not succeed.

errors.py is the errors of the API, retries.py says which requests are sent again and when, following.py when a lost
stream is connected again.

Not here: what is sent, and how (../api_request.py, ../connection.py, ../async_connection.py). Start reading at
errors.py.
"""
