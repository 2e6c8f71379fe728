"""The built-in worker of http steps: `penstock worker http`, which carries out tasks of the type `penstock.http`.

worker.py has `HttpTaskWorker`, a worker of this SDK; attempt.py is one attempt on one screen. request.py reads the
task's input; secret_store.py knows the secrets that headers name; sending.py sends and follows redirects; connecting.py
resolves names and connects to what addresses.py allows; answers.py and bodies.py make the output or the failure of what
came.

Not here: the fields of an http step (engine/run/kinds), and the rules that both go by, which stand in
engine/definition/http_requests.py; whether there is another attempt, which the engine decides. Start reading at
attempt.py.
"""
