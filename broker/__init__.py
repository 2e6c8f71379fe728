"""The broker: the only folder that imports its client. No type of the client leaves it.

Here: the names of everything that is stored (names.py), the streams and buckets themselves (provisioning.py), the
connection, pipelined publishing, continuous pulling, and on top of those History, Tasks, Bucket and DeadLetters.
server.py runs the embedded broker as a child process.
Not here: what events mean. Start reading at names.py, then history.py.
"""
