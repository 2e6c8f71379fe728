"""Commands of the engine that take more than one message: a module for each subject, for effects.py.

step_values.py reads what the beginning of an execution needs, with the elements of maps in item_cache.py, and
step_inputs.py what it was given, for readers; children.py
starts, pauses and cancels child runs; takeovers.py copies into a rerun what it takes over; paused_tasks.py withdraws
queued tasks and puts them back; cancelled_tasks.py notifies workers; approval_requests.py has the tokens of approvals.

Not here: the one match over all commands (effects.py). Start reading at step_values.py.
"""
