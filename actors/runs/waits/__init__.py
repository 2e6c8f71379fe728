"""Waits: the steps of a shard's runs that wait for an event from outside, and how an event finds them.

event_waits.py reads the stream of events for all waits of the shard; wait_index.py finds the waits that an event may
end; matching.py evaluates the condition of a step;
endings.py has the events that end a wait; checkpoints.py writes down how far the waits have seen the events.

Not here: what a wait or its event means for a run (engine/run/kinds). Start reading at event_waits.py.
"""
