"""The looks of the page: light and dark, narrow and wide, and on paper."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --card: #f6f8fa; --ink: #1b1f24; --muted: #57606a;
  --line: #d5dae0; --accent: #0b5fb0; --second: #b35900;
  --alarm: #8a1c1c; --alarm-paper: #fdecea;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171a; --card: #1e2328; --ink: #e6e8ea; --muted: #a3abb3;
    --line: #3a4148; --accent: #7ab8ff; --second: #ffb057;
    --alarm: #ffc9c4; --alarm-paper: #4a1a1a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1rem; max-width: 72rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", Roboto, sans-serif;
}
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; padding-bottom: .2rem;
  border-bottom: 1px solid var(--line); }
h1, h2, p, dd, figcaption, .breaks { overflow-wrap: anywhere; }
p { max-width: 46rem; margin: .5rem 0; }
a { color: var(--accent); }
.muted, caption, figcaption { color: var(--muted); }
.question { font-size: 1.1rem; }
.alarm { max-width: none; padding: .7rem 1rem; border-left: .3rem solid var(--alarm);
  background: var(--alarm-paper); color: var(--alarm); margin: 0 0 1rem; }
.alarm a { color: inherit; }
.facts { display: grid; gap: .6rem; padding: 0; margin: 1rem 0;
  grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr)); }
.facts div { background: var(--card); border-radius: .4rem; padding: .5rem .8rem; }
.facts dt { color: var(--muted); font-size: .85rem; }
.facts dd { margin: 0; font-size: 1.15rem; font-weight: 600; }
.pair { display: grid; gap: 1rem 3rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
.pair table { width: 100%; }
figure { margin: .6rem 0; max-width: 34rem; }
figure h3 { font-size: 1rem; margin: 0 0 .2rem; }
figure svg { display: block; width: 100%; height: auto; }
figcaption { font-size: .9rem; }
table { border-collapse: collapse; margin: .6rem 0;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; font-size: .9rem; padding-bottom: .3rem; }
th, td { padding: .25rem .9rem .25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
thead th { font-size: .85rem; color: var(--muted); vertical-align: bottom; }
tbody th { font-weight: 500; min-width: 6.5rem; }
.pairs tbody th { min-width: 7.5rem; }
.number { text-align: right; white-space: nowrap; }
.wide { width: 100%; }
summary { cursor: pointer; color: var(--accent); padding: .3rem 0; }
code { font-family: ui-monospace, Consolas, monospace; font-size: .92em; }
@media (min-width: 42.01rem) {
  td.number + td.long, th.number + th.long { padding-left: .9rem; }
}
@media (max-width: 42rem) {
  .cards thead { position: absolute; width: 1px; height: 1px; overflow: hidden;
    clip-path: inset(50%); }
  .cards, .cards tbody, .cards caption { display: block; }
  .cards tr { display: grid; grid-template-columns: 1fr 1fr; gap: .1rem .8rem;
    padding: .5rem 0; border-bottom: 1px solid var(--line); }
  .cards th, .cards td { border: 0; padding: 0; text-align: left;
    white-space: normal; }
  .cards tbody th { grid-column: 1 / -1; font-weight: 600; }
  .cards td::before { content: attr(data-head) " "; color: var(--muted);
    font-size: .85rem; }
  .cards td.long { grid-column: 1 / -1; }
  .cards td[data-head$="% from"] { grid-column: 1; }
  .cards td:empty { display: none; }
}
@media print {
  :root { --paper: #ffffff; --card: #ffffff; --ink: #000000; --muted: #444444;
    --line: #bbbbbb; --accent: #0b5fb0; --second: #8a4500;
    --alarm: #8a1c1c; --alarm-paper: #ffffff; }
  body { max-width: none; font-size: 10.5pt; }
  figure, tr, .facts div { break-inside: avoid; }
  h2 { break-after: avoid; }
}
"""
