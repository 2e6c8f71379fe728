"""The style sheet of the page that page.py renders."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --text: #1d2430; --soft: #5b6575; --line: #dfe3ea; --back: #fff; --code: #f4f6f9; --link: #1857b8;
  --get: #1c6e42; --post: #1857b8; --put: #8a5a00; --delete: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --text: #dde3ec; --soft: #98a3b5; --line: #2e3644; --back: #12161d; --code: #1c222c;
  --link: #7fb0ff; --get: #6fcf97; --post: #7fb0ff; --put: #f2c46d; --delete: #ff8a80; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 1rem; }
body { margin: 0; display: grid; grid-template-columns: 19rem minmax(0, 1fr); color: var(--text); background: var(--back);
  font: 15px/1.55 system-ui, sans-serif; }
nav { position: sticky; top: 0; height: 100vh; overflow-y: auto; padding: 1.2rem 1rem 3rem; border-right: 1px solid var(--line);
  font-size: 13px; }
nav h1 { font-size: 1.2rem; margin: 0 0 .5rem; }
nav h2 { font-size: .8rem; text-transform: uppercase; letter-spacing: .05em; color: var(--soft); margin: 1.2rem 0 .3rem; }
nav ul { list-style: none; margin: 0; padding: 0; }
nav li { margin: .15rem 0; overflow-wrap: anywhere; }
nav a { color: inherit; text-decoration: none; }
main { padding: 1.5rem 2.5rem 6rem; max-width: 62rem; }
a { color: var(--link); }
h1 { font-size: 1.7rem; margin: 0 0 .6rem; }
h2.group { font-size: 1.35rem; margin: 3rem 0 .2rem; }
h3 { font-size: 1.05rem; margin: 0 0 .4rem; }
h3 a { color: inherit; text-decoration: none; }
h4 { font-size: .8rem; text-transform: uppercase; letter-spacing: .05em; color: var(--soft); margin: 1rem 0 .3rem; }
p { margin: .4rem 0; }
section { margin: 1.6rem 0; padding-top: 1.2rem; border-top: 1px solid var(--line); }
section:target { border-top: 2px solid var(--link); }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .9em; overflow-wrap: anywhere; }
pre { margin: 0; padding: .7rem .9rem; background: var(--code); border-radius: 6px; white-space: pre-wrap; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; }
th { text-align: left; font-weight: 600; font-size: .85rem; color: var(--soft); }
th, td { padding: .3rem .8rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
.required { color: var(--delete); font-size: .8rem; }
.method { display: inline-block; min-width: 3.6em; font: 600 .78em ui-monospace, monospace; }
.get { color: var(--get); } .post { color: var(--post); } .put { color: var(--put); } .delete { color: var(--delete); }
@media (max-width: 56rem) { body { display: block; } nav { position: static; height: auto; border-right: 0; border-bottom: 1px solid
  var(--line); } main { padding: 1.2rem; } }
@media print { body { display: block; } nav { display: none; } }
"""
