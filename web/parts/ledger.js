// The error ledger: what each stage makes itself, what it was handed, and what it does with it.
import {el, make} from "../base/dom.js";
import {short} from "../base/numbers.js";
import {plainTable} from "./table.js";

const MOST = 400;

export function ledgerParts(L) {
  const told = L.entries.filter(e => e.word !== "clean"), times = {};
  for (const e of L.entries) if (e.word === "source") times[e.name] = (times[e.name] || 0) + 1;
  const sources = Object.keys(times).map(n => times[n] > 1 ? `${n} (${times[n]} times)` : n);
  const rows = told.slice(0, MOST).map(e => ({cls: e.word, cells: [e.word, short(e.total), e.local === "NaN" ? "–" : short(e.local), short(e.inherited), short(e.gain),
    (e.role === "input" ? "→ " : "") + e.name + (e.step === null ? "" : ` · step ${e.step}`)]}));
  return [make("div", `${told.length} of ${L.entries.length} stages carry an error; a source makes one of its own${told.length > MOST ? `; the first ${MOST} are shown` : ""}`, "dim"),
    make("div", sources.length ? `sources: ${sources.join(", ")}` : "no source", "card"), ...L.notes.map(n => make("div", n, "card")),
    el("div", {class: "scroll low"}, plainTable(["word", "#total", "#local", "#inherited", "#gain", "stage"], rows))];
}
