// Two programs in step: reference and candidate side by side, to where their outputs part.
import {linkTo} from "../base/address.js";
import {read, write} from "../base/api.js";
import {button, el, facts, make} from "../base/dom.js";
import {viewKeys} from "../base/keys.js";
import {short} from "../base/numbers.js";
import {failureCard} from "../parts/failure.js";
import {sourceSide} from "../parts/source_pair.js";
import {plainTable} from "../parts/table.js";
import {watchSession} from "./debug_events.js";

const AROUND = 8;
const SIDES = [["reference", "Reference", "theirs"], ["candidate", "Candidate", "yours"]];

const valueWords = v => v ? v.tensor ? `${v.tensor.dtype} ${v.tensor.shape.join(" × ") || "scalar"}` : v.text : "–";
const apartWords = d => !d ? "" : d.error ? d.error.message : d.kind === "shape" ? "shapes differ" : short(d.relative);

export class TwinView {
  constructor(box, name) {
    this.name = name, this.number = 0, this.watched = [];
    this.found = el("div", {}), this.sides = el("div", {class: "sides"}), this.variables = el("div", {}), this.problem = el("div", {}), this.answer = el("div", {});
    const act = (words, operation, args, key) => button([words, key ? " " : "", key ? make("kbd", key) : ""], () => this.act(operation, args), key === "F5" ? {class: "primary"} : {});
    const input = el("input", {class: "mono", placeholder: "the same expression in both", "aria-label": "evaluate in both", size: 36});
    this.buttons = [act("To where they part", "continue", {until_divergence: true}, "F5"), act("Next line", "next", {}, "F10"), act("Next module", "next", {call: true}, "F11"), act("Continue", "continue", {}), act("Put the reference's tensor in place", "substitute", {}), act("End both", "terminate", {})];
    box.append(el("div", {class: "pad"}, el("div", {class: "crumbs"}, el("a", {href: linkTo("debug")}, "Debug"), "/", make("h1", name, "title")),
      el("div", {class: "filters"}, ...this.buttons), this.problem, this.found, this.sides,
      make("h2", "Variables of both"), this.variables, make("h2", "Evaluate in both"),
      el("form", {class: "filters", onsubmit: e => (e.preventDefault(), input.value.trim() && this.evaluate(input.value.trim()))}, input, el("button", {type: "submit"}, "Evaluate")), this.answer));
    viewKeys([{keys: "F5, c", words: "to where they part", run: () => this.act("continue", {until_divergence: true})}, {keys: "F10, n", words: "next line of both", run: () => this.act("next", {})}, {keys: "F11, i", words: "next module of both", run: () => this.act("next", {call: true})}, {keys: "e", words: "evaluate in both", run: () => input.focus()}]);
    this.load();
  }
  close() { this.closed = true, this.watched.forEach(stop => stop()); }
  async load() {
    try { this.show(await read("debug/twin/status", {twin: this.name})); } catch (error) { this.problem.replaceChildren(failureCard(error, () => this.load())); }
  }
  async act(operation, args) {
    if (this.busy) return;
    this.busy = true, this.buttons.forEach(b => b.disabled = true), this.problem.replaceChildren(make("div", "Both programs are running …", "dim"));
    try { this.show(await write(`debug/twin/${operation}`, {twin: this.name, ...args})); } catch (error) { this.problem.replaceChildren(failureCard(error)); }
    this.busy = false, this.buttons.forEach(b => b.disabled = false);
  }
  show(S) {
    if (this.closed) return;
    const number = ++this.number, parted = S.candidate.stop?.reason === "divergence" && S.candidate.state === "stopped", c = S.comparison || {};
    this.problem.replaceChildren();
    if (!this.watched.length) this.watched = SIDES.map(([side]) => watchSession(S[side].id, () => this.busy || this.load()));
    const passed = c.compared === undefined ? "" : `${c.compared} compared${c.worst ? `, the largest error ${short(c.worst)}` : c.compared ? ", all equal" : ""}`;
    this.found.replaceChildren(parted ? el("div", {class: "card error", role: "status"}, make("strong", "They part here"), make("div", S.candidate.stop.description, "mono"), make("div", passed, "dim")) : make("div", passed, "dim"));
    this.sides.replaceChildren(...SIDES.map(([side, title, cls]) => this.side(S[side], title, cls, number)));
    if (S.stopped) this.drawVariables(number);
    else this.variables.replaceChildren(make("div", "both must stand", "dim"));
  }
  side(s, title, cls, number) {
    const at = s.stop?.location, source = el("div", {}), words = s.state === "stopped" && at ? `${at.file.split("/").at(-1)}:${at.line} in ${at.function}` : "";
    if (words) this.source(s.id, at, cls, source, number);
    return el("section", {class: "card", "aria-label": title}, el("div", {class: "filters"}, make("h2", title), make("span", s.state === "ended" ? `ended${s.end?.exit_code === undefined ? "" : `, status ${s.end.exit_code}`}` : s.state, "chip"), el("a", {href: linkTo("debug", s.id)}, "open alone")),
      words ? make("div", words, "mono dim") : "", source);
  }
  async source(session, at, cls, box, number) {
    try {
      const S = await read("debug/source", {session, file: at.file, line: at.line, around: AROUND});
      if (number === this.number) box.replaceChildren(sourceSide("", S.lines.map((code, k) => ({line: S.first + k, code, named: S.first + k === at.line})), cls));
    } catch (error) { box.replaceChildren(make("div", error.message, "dim")); }
  }
  async drawVariables(number) {
    try {
      const a = await read("debug/twin/vars", {twin: this.name});
      if (number !== this.number) return;
      const rows = a.variables.map(v => ({cls: v.difference && v.difference.unequal !== 0 || valueWords(v.reference) !== valueWords(v.candidate) ? "differs" : "", cells: [v.name, valueWords(v.reference), valueWords(v.candidate), apartWords(v.difference)]}));
      this.variables.replaceChildren(el("div", {class: "scroll"}, plainTable(["name", "reference", "candidate", "#difference"], rows)));
    } catch (error) { if (number === this.number) this.variables.replaceChildren(make("div", error.message, "dim")); }
  }
  async evaluate(expression) {
    try {
      const a = await write("debug/twin/eval", {twin: this.name, expression}), words = s => s.error ? s.error.message : valueWords(s.value);
      this.answer.replaceChildren(facts([["reference", words(a.reference)], ["candidate", words(a.candidate)], ["difference", apartWords(a.difference)]], "mono"));
    } catch (error) { this.answer.replaceChildren(failureCard(error)); }
  }
}
