"""Who may do what: requests.py is what is asked, views.py what is answered.

Not here: how a client sends its key (connection.py). Start reading at requests.py.
"""
