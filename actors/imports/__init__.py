"""Imported runs: records of what happened elsewhere, which are read like any run and never change.

document.py checks what is to be imported; importing.py stores it; reading.py reads runs, whether imported or not.

Not here: how a document is stored (broker/records/imports.py), and runs that the service carries out (runs/loading.py).
Start reading at importing.py.
"""
