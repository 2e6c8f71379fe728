"""The web console: pages for people, under /console.

pages.py answers every address of the console with one page of HTML, which has a summary of what it shows for browsers
without scripts (summary.py, page.html). assets.py serves what the page loads. The sources are in web/, which
scripts/console builds into built/; pages read and change everything over the public API.

Not here: any data or operation that the API does not have. Start reading at pages.py, then web/src/main.tsx.
"""
