#include "report/page.h"

namespace lockstep::page {

const char* const kStyle = R"CSS(
:root {
  color-scheme: light dark;
  --ink: #1b1f24; --dim: #5d6673; --line: #d8dce2; --back: #fff; --soft: #f5f7f9; --band: #eceff3;
  --bad: #c62f2f; --good: #1d7f45; --mark: #a35f00; --ref: #2f6fc6; --cand: #d2691e;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e7eaee; --dim: #9aa3b2; --line: #353b44; --back: #15181c; --soft: #1c2026; --band: #22272e;
    --bad: #ff7a70; --good: #5bd08c; --mark: #e6a23c; --ref: #77aaff; --cand: #ffb070;
  }
}
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 1240px; padding: 20px 24px 60px; font: 15px/1.45 system-ui, sans-serif;
  color: var(--ink); background: var(--back) }
h1 { font-size: 28px; margin: 0 0 2px }
h2 { font-size: 17px; margin: 30px 0 10px; padding-bottom: 4px; border-bottom: 1px solid var(--line) }
.bad { color: var(--bad) } .good { color: var(--good) } .dim { color: var(--dim) }
code, td, .mono { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 13px }
.card { background: var(--soft); border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px; margin: 8px 0 }
.card b { color: var(--mark); font-family: ui-monospace, "DejaVu Sans Mono", monospace }
dl { display: grid; grid-template-columns: 110px 1fr; gap: 3px 12px; margin: 6px 0 }
dt { color: var(--dim) } dd { margin: 0; overflow-wrap: anywhere }
.plot { width: 100%; height: 320px; border: 1px solid var(--line); border-radius: 8px; background: var(--soft);
  cursor: crosshair; display: block; touch-action: none }
#grid { cursor: pointer }
.row { display: flex; gap: 16px; flex-wrap: wrap; margin: 6px 0 }
.row figure { margin: 0; flex: 1 1 260px; min-width: 220px; max-width: 400px }
.row canvas { width: 100%; image-rendering: pixelated; border: 1px solid var(--line); border-radius: 6px; display: block }
.row canvas.map { aspect-ratio: 1 } .row canvas.bars { aspect-ratio: 5 / 2; image-rendering: auto }
.row figure.wide { flex-basis: 520px; max-width: 816px }
figcaption { font-size: 13px; color: var(--dim); margin-top: 4px }
.scale { display: inline-block; width: 90px; height: 9px; vertical-align: baseline; margin: 0 5px;
  background: linear-gradient(90deg, #00f, #fff, #f00); border: 1px solid var(--line) }
.filters { display: flex; gap: 8px; flex-wrap: wrap; align-items: center; margin: 8px 0 }
input, select, button { font: inherit; font-size: 14px; padding: 4px 9px; border: 1px solid var(--line);
  border-radius: 6px; background: var(--back); color: var(--ink) }
button { cursor: pointer } button:disabled { opacity: .4; cursor: default }
.scroll { height: 520px; overflow: auto; border: 1px solid var(--line); border-radius: 8px }
#ledger .scroll { height: auto; max-height: 420px }
table { border-collapse: collapse; width: 100% }
th { position: sticky; top: 0; background: var(--band); text-align: left; font-size: 13px; padding: 6px 8px;
  cursor: pointer; z-index: 1; white-space: nowrap }
td { padding: 0 8px; height: 24px; border-top: 1px solid var(--line); white-space: nowrap }
td.number, th.number { text-align: right } #body tr { cursor: pointer } #body tr:hover td { background: var(--soft) }
tr.first td { background: color-mix(in srgb, var(--bad) 14%, transparent) }
tr.chosen td, #body tr.chosen:hover td { background: color-mix(in srgb, var(--ref) 22%, transparent) }
tr.mismatch td.state, tr.incomparable td.state, tr.source td:first-child { color: var(--bad); font-weight: 600 }
tr.layout td.state, tr.amplifier td:first-child { color: var(--mark) } tr.unread td { color: var(--dim) }
.sides { display: grid; grid-template-columns: 1fr 1fr; gap: 12px; margin: 8px 0 }
.source { min-width: 0; overflow-x: auto } .source .file { font-size: 13px; color: var(--dim); margin-top: 4px }
.source pre { margin: 0; padding: 1px 6px; font: 13px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; width: max-content; min-width: 100% }
.source.yours pre.named { background: color-mix(in srgb, var(--bad) 18%, transparent) }
.source.theirs pre.named { background: color-mix(in srgb, var(--good) 18%, transparent) }
@media (max-width: 800px) { .sides { grid-template-columns: 1fr } }
#tip { position: fixed; pointer-events: none; background: var(--ink); color: var(--back); padding: 4px 8px;
  border-radius: 6px; font-size: 12px; display: none; max-width: 520px; z-index: 5; overflow-wrap: anywhere }
)CSS";

}  // namespace lockstep::page
