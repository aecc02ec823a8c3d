"""How the page looks: on light and dark screens, narrow and wide ones, and on paper."""

__all__ = ["STYLE"]

STYLE = """
:root {
  color-scheme: light dark;
  --page: #ffffff; --text: #1b1f24; --quiet: #5b6470; --line: #d4d7dc; --soft: #f4f5f7;
  --blue: #0072b2; --link: #0b62a4; --ok: #1a7f37; --warning: #9a5b00; --broken: #c11f1f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15191e; --text: #e6e8eb; --quiet: #a3acb8; --line: #3a4049; --soft: #20252c;
    --blue: #5b8fe8; --link: #6cb6ff; --ok: #57c878; --warning: #e6a23c; --broken: #ff7b72;
  }
}
* { box-sizing: border-box; }
body {
  max-width: 1140px; margin: 0 auto; padding: 1.5rem 1.25rem 3rem;
  background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", "Liberation Sans", Arial, sans-serif;
}
h1 { margin: 0; font-size: 1.7rem; line-height: 1.25; overflow-wrap: anywhere; }
h2 {
  margin: 2.2rem 0 .6rem; padding-bottom: .25rem; border-bottom: 1px solid var(--line);
  font-size: 1.2rem;
}
h3 { margin: 0 0 .35rem; font-size: 1rem; }
p { margin: .4rem 0; overflow-wrap: anywhere; }
a, summary { color: var(--link); }
header > p, figcaption > p, dt, dd + dd { color: var(--quiet); font-size: .87rem; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; margin: .5rem 0 1rem; font-size: .9rem; }
dl {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: .75rem;
  margin: 0;
}
dl > div {
  padding: .6rem .8rem; border: 1px solid var(--line); border-radius: 6px;
  background: var(--soft);
}
dd { margin: 0; }
dt + dd { font-size: 1.45rem; line-height: 1.35; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
.beside { display: flex; flex-wrap: wrap; gap: 0 3rem; align-items: flex-start; }
table { border-collapse: collapse; font-size: .89rem; }
th, td {
  padding: .28rem 1.2rem .28rem 0; border-bottom: 1px solid var(--line);
  text-align: left; vertical-align: top; overflow-wrap: break-word;
}
thead th { color: var(--quiet); font-weight: 600; white-space: nowrap; }
tbody th { min-width: 12rem; color: var(--quiet); font-weight: 400; }
td.number, th.number {
  text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums;
}
.status { font-weight: 600; }
.status.ok { color: var(--ok); }
.status.warning, .missing { color: var(--warning); }
.status.broken { color: var(--broken); }
pre {
  padding: .6rem .8rem; border-radius: 6px; background: var(--soft); font-size: .87rem;
  overflow-x: auto;
}
.charts {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr));
  gap: 1.5rem 2rem; align-items: start;
}
figure { min-width: 0; margin: .6rem 0 0; break-inside: avoid; }
figure.wide { grid-column: 1 / -1; }
svg {
  display: block; max-width: 100%; height: auto;
  fill: currentColor; stroke-linejoin: round; stroke-linecap: butt;
}
figcaption > p { max-width: 46rem; margin: .3rem 0; }
details { font-size: .9rem; }
summary { width: max-content; cursor: pointer; }
details .scroll { max-height: 22rem; margin-top: .3rem; overflow: auto; }
@media print {
  :root {
    color-scheme: light;
    --page: #ffffff; --text: #000000; --quiet: #444444; --line: #d4d7dc; --soft: #ffffff;
    --blue: #0072b2; --link: #000000; --ok: #1a7f37; --warning: #9a5b00; --broken: #c11f1f;
  }
  nav, details:not([open]) { display: none; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  details .scroll { max-height: none; }
}
"""
