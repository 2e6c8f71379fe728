"""Why a run does not go on: sentences for people, from its state and from facts about workers, queues and engines.

`reasons.py` has the reasons and the form of an answer, `awaited.py` works out what each execution of a run waits for,
`facts.py` is what has to be known of the world to explain that, and `explain.py` joins the two; `texts.py` has the
sentences.

Not here: how facts are gathered (actors/diagnosis). Pure, like all of engine/. Start reading at `explain`.
"""
