// The chosen pair: reference, yours and difference as heat maps that move together, both histograms, both sources.
import {patch, windowOf, windowText} from "../base/address.js";
import {floatsOf, read, readBytes} from "../base/api.js";
import {el, make} from "../base/dom.js";
import {num, short} from "../base/numbers.js";
import {barsFigure} from "../parts/bars.js";
import {failureCard} from "../parts/failure.js";
import {DTYPE, ERROR, KEPT, LARGEST, NOTE, PARTNER, ROLE, SHAPE, STATE, isBad, titleOf} from "../parts/rows.js";
import {sourceSide} from "../parts/source_pair.js";
import "../parts/heat.js";

const PLANES = [["reference", "reference"], ["candidate", "yours"], ["difference", "difference"]];

export class PairView {
  constructor(view, window) {
    this.view = view, this.number = 0, this.wanted = window;
    this.card = el("div", {class: "card"}), this.below = el("div", {}), this.source = el("div", {});
    this.heats = PLANES.map(() => el("ls-heat", {}));
    this.figures = PLANES.map(([, words], k) => el("figure", {}, make("h3", words), this.heats[k]));
    this.box = el("div", {}, this.card, el("div", {class: "maps"}, ...this.figures), this.below, this.source);
    this.heats.forEach((heat, k) => {
      heat.addEventListener("moved", e => {
        patch({window: windowText(e.detail)});
        this.heats.forEach((other, j) => j !== k && !this.figures[j].hidden && other.follow(e.detail));
      });
      heat.addEventListener("point", e => this.heats.forEach((other, j) => j !== k && other.point(...e.detail)));
    });
  }
  async show(i) {
    const rows = this.view.rows, r = rows.at(i), number = ++this.number, window = windowOf(this.wanted);
    this.wanted = "";  // of the pair that the address named; another one is shown whole
    this.card.replaceChildren(make("div", titleOf(r), "mono"), r[PARTNER] ? make("div", `yours: ${r[PARTNER]}`, "mono dim") : "",
      make("div", `${r[STATE]} · ${r[ROLE]} · ${r[DTYPE]} ${r[SHAPE]} · error ${short(r[ERROR])}, limit ${short(rows.limit(i))} · largest ${short(r[LARGEST])}${r[NOTE] ? ` · ${r[NOTE]}` : ""}`, isBad(r) ? "bad" : "dim"));
    this.below.replaceChildren(), this.lines(i, number);
    this.figures.forEach(f => f.hidden = true);
    if (!r[KEPT]) return this.below.replaceChildren(make("div", "The values of this pair were not kept on both sides.", "dim"));
    // Three maps, one request: who asks first asks for all.
    const asked = new Map(), question = {...this.view.question, row: i};
    const plane = name => (window, cells, signal) => {
      const key = JSON.stringify([window, cells]);
      if (!asked.has(key)) {
        asked.clear();
        asked.set(key, readBytes("compare/heat", {...question, ...window, height: cells, width: cells, histogram: !window.rows}));
      }
      return asked.get(key).then(answer => {
        if (signal.aborted) throw new DOMException("", "AbortError");
        let at = 0;
        for (const [each, map] of Object.entries(answer.planes)) {
          const count = map.height * map.width;
          if (each === name) return {...map, cells: floatsOf(answer, count, at)};
          at += count;
        }
        throw new Error("this side has another shape");
      });
    };
    try {
      const cells = 256, first = readBytes("compare/heat", {...question, height: cells, width: cells, histogram: true}), answer = await first;
      if (number !== this.number) return;
      const limits = Object.entries(answer.planes).filter(([n]) => n !== "difference").map(([, m]) => num(m.limit)), limit = limits[0] > 0 ? limits[0] : limits[1] ?? 0;
      PLANES.forEach(([name], k) => {
        this.figures[k].hidden = !answer.planes[name];
        if (!answer.planes[name]) return;
        const ask = plane(name);
        let given = true;
        this.heats[k].show((window, wanted, signal) => {
          if (given && !window.rows) {
            given = false;
            let at = 0;
            for (const [each, map] of Object.entries(answer.planes)) {
              if (each === name) return Promise.resolve({...map, cells: floatsOf(answer, map.height * map.width, at)});
              at += map.height * map.width;
            }
          }
          return ask(window, wanted, signal);
        }, window, name === "difference" ? null : limit);
      });
      if (answer.histogram) {
        const h = answer.histogram;
        this.below.replaceChildren(el("div", {class: "row"}, barsFigure(h.reference ? h : {...h, reference: h.candidate, candidate: undefined}, "")));
      }
    } catch (error) { if (number === this.number) this.below.replaceChildren(failureCard(error)); }
  }
  async lines(i, number) {
    try {
      const S = await read("compare/source", {...this.view.question, row: i});
      if (number !== this.number) return;
      const side = (title, s, cls) => s.lines.length ? sourceSide(title, s.lines.map(l => ({...l, file: s.file})), cls) : el("div", {class: `source ${cls}`}, make("div", title, "dim"), make("div", s.where || "where it was made is not known", "file"));
      this.source.replaceChildren(S.reference.where || S.candidate.where ? el("div", {class: "sides card"}, side("yours", S.candidate, "yours"), side("reference", S.reference, "theirs")) : "");
    } catch { if (number === this.number) this.source.replaceChildren(); }
  }
}
