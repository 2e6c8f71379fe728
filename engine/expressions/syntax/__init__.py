"""The text of an expression, read: library.py is the only module that knows the CEL library, tree.py has the tree that
it gives, names.py checks what the tree reads and calls.

Not here: values. Start reading at tree.py.
"""
