"""What happens to one execution of a step, whatever its kind: it is ordered and begun, starts, is put aside, tried
again, completes or fails for good.

beginning.py evaluates a step's expressions and begins it, dispatch.py orders its task, steps.py has what follows from
its events, deliveries.py what workers report of theirs, retry.py the waits in between. compensation.py undoes what a
run has done, ending.py cancels what is open. inputs.py says what it receives, elements.py keeps those of a map in few
bytes. Not here: what is special about a kind of step (engine/run/kinds). Start reading at steps.py.
"""
