"""Limits in the simulation: what definitions of some seeds say of them, and what must hold.

`definitions.py` gives workflows limits, `moments.py` the troubles that limits do not like. `log.py` tells the LIMITS
log again by rules of its own, which know nothing of engine/limits; `out.py` counts what is really out by the histories
of runs; `replayed.py` asks whether what an owner has in memory is what its log says. `laws.py` puts them together for
one world. Start reading at `log.py`.
"""
