"""What the log of a run says, told again by rules of its own: they know the definition and the events, and nothing of
how the engine decides. What the engine makes of each event is compared with that.

It looks at runs of workflows with more kinds of steps (`workflows.py`); what operators ask of any run is told of every
run, by `pauses.py`, `by_hand.py` and `reruns.py`. `retelling.py` has the one `match` over the events of a run;
`told.py` is what is so by the log; each rule has a module of its own, about one subject: a class that is given the
`Told` and raises Broken. `families.py` is about what concerns more than one run. A new rule: its module, and its cases
in `retelling.py`. Not here: laws that hold for every run (`tests/properties/laws.py`,
`watch.py`). Start reading at `retelling.py`.
"""
