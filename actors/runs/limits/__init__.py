"""Limits: the owner of a partition decides who gets the slots of the limits in it.

limit_owner.py reads the log of the limits in the partitions of a shard and follows it; partition_limits.py has the
limits of one partition, and keeps their log short; limit_actor.py has one limit: it folds what was asked, stores what
is decided and informs the runs (news.py). allowances.py has how much is allowed now; token_timers.py wakes limits whose
next token is due; backstop.py looks whether old holders still hold, late_grants.py gives back the slots of runs that
are gone; answers.py is for who wants to see a limit.

Not here: who gets a slot (engine/limits), how runs ask (../commands/slots.py). Start reading at limit_actor.py.
"""
