#include "report/page.h"

namespace lockstep::page {

const char* const kBody = R"HTML(
<h1 id="verdict"></h1>
<div class="dim" id="sub"></div>
<div id="divergence"></div>
<div id="inside"></div>
<h2>Error over the stages</h2>
<div class="filters">
  <select id="curve-step" title="denoising step"></select>
  <select id="curve-role" title="role"></select>
  <button id="zoom-in">zoom in</button><button id="zoom-out">zoom out</button><button id="reset">whole run</button>
  <span class="dim">wheel zooms, drag moves, a click chooses the tensor</span>
</div>
<canvas class="plot" id="plot"></canvas>
<div class="dim" id="growth"></div>
<div id="steps" hidden>
  <h2>Error over stages and steps</h2>
  <canvas class="plot" id="grid"></canvas>
  <div class="dim">one row a stage, one column a step; from the noise floor (pale) to 10<sup>4</sup> times the limit (dark)</div>
</div>
<h2>Tensor</h2>
<div class="filters">
  <button id="previous">◀</button><button id="next">▶</button><button id="to-first">first divergence</button>
  <button id="to-worst">largest error</button>
</div>
<div id="tensor"></div>
<div id="pictures"></div>
<div id="ledger"></div>
<h2>All tensors</h2>
<div class="filters">
  <input id="search" placeholder="part of a name, or a glob" size="30">
  <select id="state" title="state"></select><select id="role" title="role"></select>
  <select id="step" title="denoising step"></select><select id="pass" title="pass"></select>
  <label class="dim">error at least <input id="least" size="7" placeholder="1e-3"></label>
  <button id="clear">clear</button><span class="dim" id="count"></span>
</div>
<div class="scroll" id="scroll"><table><thead><tr id="head"></tr></thead><tbody id="body"></tbody></table></div>
<div id="notes"></div>
<div id="tip"></div>
)HTML";

}  // namespace lockstep::page
