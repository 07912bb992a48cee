// A report: the answer of one comparison as one file, opened from a disk. The rows and maps in it are packed.
import {$, make} from "./base/dom.js";
import {num, short} from "./base/numbers.js";
import {barsFigure} from "./parts/bars.js";
import {causeCards, divergenceCard, noteCards, verdictWords} from "./parts/findings.js";
import {heatFigure, sizeWords} from "./parts/heat_figure.js";
import {ledgerParts} from "./parts/ledger.js";
import {pictureRow} from "./parts/pictures.js";
import {DTYPE, ERROR, LARGEST, NOTE, ROLE, SHAPE, STATE, Rows, isBad, titleOf} from "./parts/rows.js";
import {insideCards} from "./parts/source_pair.js";

async function unpacked(id) {
  const raw = Uint8Array.from(atob($(id).textContent), c => c.charCodeAt(0));
  return new Response(new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

class Report {
  async open() {
    this.summary = JSON.parse($("data").textContent);
    const [rows, cells] = await Promise.all([unpacked("rows"), unpacked("cells")]);
    const bulk = JSON.parse(new TextDecoder().decode(rows));
    this.rows = new Rows(bulk.rows, this.summary.factor, this.summary.first);
    this.maps = bulk.maps, this.cells = new Int8Array(cells), this.chosen = null;
    this.tell();
    for (const id of ["curve", "grid", "all"]) {
      $(id).rows = this.rows;
      $(id).addEventListener("choose", e => (e.stopPropagation(), this.choose(e.detail)));
    }
    $("steps").hidden = !$("grid").useful;
    $("previous").onclick = () => this.choose(this.chosen - 1), $("next").onclick = () => this.choose(this.chosen + 1);
    $("to-first").hidden = this.rows.first === null;
    $("to-first").onclick = () => this.choose(this.rows.first), $("to-worst").onclick = () => this.choose(this.rows.worst());
    if (this.rows.length) this.choose(this.rows.first === null ? this.rows.worst() : this.rows.first);
  }
  tell() {
    const D = this.summary, S = D.summary, add = (id, title, parts) => parts.length && $(id).append(make("h2", title), ...parts);
    $("verdict").textContent = verdictWords(S.verdict), $("verdict").className = S.verdict === "match" ? "good" : "bad";
    $("sub").textContent = `${S.compared} tensors compared, ${this.rows.list.filter(isBad).length} differ · reference ${S.reference} · candidate ${S.candidate} · noise floor from ${S.noise.source}`;
    if (S.first_divergence) add("divergence", "First divergence", [divergenceCard(S.first_divergence)]), add("divergence", "Cause", causeCards(S.causes));
    if (D.inside) add("inside", "Lines", insideCards(D.inside));
    $("growth").textContent = S.growth.words;
    add("notes", "Notes", noteCards(S.notes));
    add("pictures", "Images", D.pictures.flatMap(pictureRow));
    if (D.ledger) add("ledger", "Error ledger", ledgerParts(D.ledger));
  }
  choose(i) {
    this.chosen = Math.max(0, Math.min(this.rows.length - 1, i));
    this.showTensor();
    for (const id of ["curve", "grid", "all"]) $(id).choose(this.chosen);
  }
  // A plane of a map, from signed parts of its limit to values.
  plane(m, k) {
    const [height, width, rows, columns, at, levels] = m.size[m.size.length > 1 ? Math.min(k, m.size.length - 1) : 0], limit = num(m.limits[k]);
    const from = m.size.length > 1 ? at : at + k * height * width, cells = new Float32Array(height * width);
    for (let i = 0; i < cells.length; ++i) {
      const v = this.cells[from + i];
      cells[i] = v === -128 ? NaN : v / levels * limit;
    }
    return {height, width, rows, columns, limit, cells, exact: false};
  }
  showTensor() {
    const i = this.chosen, r = this.rows.at(i), m = this.maps[i], box = $("tensor"), row = make("div", undefined, "row");
    $("previous").disabled = i === 0, $("next").disabled = i === this.rows.length - 1;
    const card = make("div", undefined, "card"), name = make("div", titleOf(r), "mono");
    name.id = "chosen", card.append(name);
    card.append(make("div", `${r[STATE]} · ${r[ROLE]} · ${r[DTYPE]} ${r[SHAPE]} · error ${short(r[ERROR])}, limit ${short(this.rows.limit(i))} · largest ${short(r[LARGEST])}${r[NOTE] ? ` · ${r[NOTE]}` : ""}`, isBad(r) ? "bad" : "dim"));
    box.replaceChildren(card);
    if (!m) {
      card.append(make("div", r[STATE] === "unread" ? "Its values were not kept: record it in full to see them." : "No values to show.", "dim"));
      return;
    }
    ["reference", "yours", "difference"].slice(0, m.limits.length).forEach((words, k) => {
      const plane = this.plane(m, k);
      row.append(heatFigure(plane, `${m.limits.length === 1 ? "both sides, identical" : words}: ${sizeWords(plane)}`));
    });
    box.append(row);
    if (m.histogram) {
      const second = make("div", undefined, "row"), [low, high, looked_at, at, bins, sides] = m.histogram;
      // Counts travel as one byte each, on the log scale they are drawn on.
      const counts = k => Array.from(this.cells.subarray(at + k * bins, at + (k + 1) * bins), b => Math.round(Math.exp((b & 255) / 12) - 1));
      second.append(barsFigure({low, high, sampled: looked_at > 0, looked_at, reference: counts(0), candidate: sides > 1 ? counts(1) : undefined})), box.append(second);
    }
  }
}

const report = new Report();
const ready = report.open();
