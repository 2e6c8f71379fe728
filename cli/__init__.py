"""The `penstock` command.

main.py is the command itself and its exit codes. Rooms: commands/ has one file for each group of commands; terminal/ is
what they share: how results are shown, how people write run ids, times, documents and options.

Not here: rules of the service. A command parses, calls the HTTP client (client/), and prints; `validate` alone calls
the engine. Everything heavy (the HTTP client, rich, the commands themselves) is imported when it is used: `penstock
--help` must answer at once. Start reading at main.py.
"""
