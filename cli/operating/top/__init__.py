"""`penstock top`: a live view of the service on a terminal.

observing.py reads one state of the service, screen.py draws it, keys.py reads keys and the terminal's size, command.py
joins them. Not here: how a single run is shown (terminal/run_view.py). Start reading at `top` in command.py.
"""
