"""The run report's style sheet: calm, light and dark, printable; no external font or picture."""

STYLE = """
:root { color-scheme: light dark; --page: #f6f5f1; --card: #ffffff; --ink: #23241f; --quiet: #6d6e66; --line: #e2e0d8;
  --accent: #0f6f73; --raw: #0f6f7344; --warm: #b4581a; }
@media (prefers-color-scheme: dark) { :root { --page: #15171a; --card: #1d2024; --ink: #e8e6df; --quiet: #9a9b93;
  --line: #31353a; --accent: #4dbdbd; --raw: #4dbdbd44; --warm: #e69a55; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.55 system-ui, "Segoe UI", "Noto Sans", sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 44px 28px 60px; }
header { margin-bottom: 28px; }
h1 { font-size: 30px; line-height: 1.2; font-weight: 640; letter-spacing: -0.01em; margin: 0 0 6px; overflow-wrap: anywhere; }
h2 { font-size: 17px; font-weight: 620; margin: 0 0 14px; }
header p, .hint { color: var(--quiet); margin: 0; }
.hint { font-size: 13.5px; margin: -8px 0 14px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 22px 24px; margin-bottom: 20px; }
section.plain { background: none; border: 0; padding: 0; }
.opening { display: grid; grid-template-columns: minmax(0, 1fr); gap: 20px; align-items: stretch; }
.opening.with-video { grid-template-columns: minmax(0, 400px) minmax(0, 1fr); }
.opening video { width: 100%; height: 100%; aspect-ratio: 1; object-fit: contain; background: #000;
  border-radius: 12px; display: block; }
.tiles { display: grid; grid-template-columns: repeat(auto-fill, minmax(190px, 1fr)); gap: 14px; align-content: stretch; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 16px 18px; }
.tile .label { color: var(--quiet); font-size: 13px; }
.tile .value { font-size: 27px; font-weight: 640; letter-spacing: -0.015em; line-height: 1.25; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.tile .note { color: var(--quiet); font-size: 12.5px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 18px 26px; }
.chart { width: 100%; height: auto; display: block; }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.chart .base, .chart .mark { stroke: var(--quiet); stroke-width: 1; }
.chart text { fill: var(--quiet); font: 11.5px system-ui, "Segoe UI", "Noto Sans", sans-serif; }
.chart .tick.y, .chart .name.x { text-anchor: end; }
.chart .tick.x, .chart .name.y { text-anchor: middle; }
.chart polyline { fill: none; stroke-linejoin: round; stroke-linecap: round; }
.chart .curve { stroke: var(--accent); stroke-width: 2; }
.chart .raw { stroke: var(--raw); stroke-width: 1; }
.chart circle.end { fill: var(--accent); }
.chart text.end { fill: var(--ink); font-weight: 620; text-anchor: end; font-size: 13px; }
.empty { color: var(--quiet); margin: 0; }
.views { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 22px 28px; }
figure { margin: 0; break-inside: avoid; }
.triple { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 5px; }
.triple img { width: 100%; height: auto; display: block; background: #000; border-radius: 5px; }
figcaption { display: flex; flex-wrap: wrap; justify-content: space-between; gap: 0 14px; font-size: 13.5px; margin-top: 6px; }
figcaption .name { color: var(--quiet); overflow-wrap: anywhere; }
figcaption .score { font-variant-numeric: tabular-nums; font-weight: 560; }
.captions { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 5px; color: var(--quiet); font-size: 12.5px;
  margin-bottom: 4px; }
.scale { display: inline-block; width: 110px; height: 9px; border-radius: 5px; vertical-align: middle; margin: 0 6px;
  background: linear-gradient(90deg, rgb(0 0 4), rgb(87 16 110), rgb(188 55 84), rgb(249 142 9), rgb(252 255 164)); }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
td, th { text-align: left; padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; }
th { font-weight: 500; color: var(--quiet); width: 46%; }
tr:last-child td, tr:last-child th { border-bottom: 0; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; width: 90px; }
td.share { width: 45%; padding-right: 0; }
.bar { height: 10px; border-radius: 5px; background: var(--accent); min-width: 2px; margin-top: 6px; print-color-adjust: exact;
  -webkit-print-color-adjust: exact; }
.columns { columns: 2 420px; column-gap: 36px; }
.columns h3 { font-size: 13.5px; margin: 14px 0 3px; color: var(--warm); font-weight: 620; break-after: avoid; }
.columns > div { break-inside: avoid; }
.columns > div:first-child h3 { margin-top: 0; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 400px), 1fr)); gap: 20px; }
.pair section { margin-bottom: 20px; }
ul.notes { margin: 0; padding-left: 20px; }
footer { color: var(--quiet); font-size: 12.5px; text-align: center; }
@media (max-width: 760px) { main { padding: 24px 14px; } .opening.with-video { grid-template-columns: minmax(0, 1fr); } }
@media print { :root { --page: #fff; --card: #fff; --ink: #000; --quiet: #555; --line: #ccc; --accent: #0f6f73;
  --raw: #0f6f7355; --warm: #b4581a; }
  main { max-width: none; padding: 0; } section, .tile { break-inside: avoid; } section.long { break-inside: auto; }
  .opening.with-video { grid-template-columns: minmax(0, 1fr); } .opening video { display: none; }
  .charts, .views, .pair { grid-template-columns: 1fr 1fr; gap: 12px 18px; } }
"""
