"""Expressions: CEL in `when`, `match` and keys, and in the templates of `with`.

expression.py compiles one and evaluates it, template.py does the same for JSON with `${{ … }}` in its strings; scope.py
says which names may be read, and which are. Rooms: syntax/ reads the text by way of the CEL library, evaluation/ gives
the values. Whoever imports expression.py or template.py does not load the library: the first compilation does.

Not here: which fields of a step are expressions, and where their values come from. Start reading at expression.py.
"""
