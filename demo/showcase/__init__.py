"""What `penstock demo --console` fills a service with: workflows of a shop, its website, a newsroom and a laboratory.

Here: the definitions (definitions/, the triggers in triggers.json), the functions of their steps in four workers
(shop.py, site.py, newsroom.py, lab.py), what is started at the beginning (opening.py) and from then on (trickle.py),
with names and payloads of people who do not exist (people.py).

Not here: the command, and the processes of the workers (cli/console/). Start reading at opening.py.
"""
