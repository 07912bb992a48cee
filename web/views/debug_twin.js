// Two programs in step: reference and candidate side by side, to where their outputs part.
import {linkTo} from "../base/address.js";
import {read, write} from "../base/api.js";
import {button, el, facts, make} from "../base/dom.js";
import {viewKeys} from "../base/keys.js";
import {short} from "../base/numbers.js";
import {failureCard} from "../parts/failure.js";
import {plainTable} from "../parts/table.js";

export class TwinView {
  constructor(box, name) {
    this.name = name, this.state = el("div", {}), this.variables = el("div", {}), this.problem = el("div", {}), this.answer = el("div", {});
    const act = (words, operation, args) => button(words, () => this.act(operation, args));
    const input = el("input", {class: "mono", placeholder: "the same expression in both", "aria-label": "evaluate in both", size: 36});
    box.append(el("div", {class: "pad"}, el("div", {class: "crumbs"}, el("a", {href: linkTo("debug")}, "Debug"), "/", make("h1", name, "title")),
      el("div", {class: "filters"}, act("To where they part", "continue", {until_divergence: true}), act("Continue", "continue", {}), act("Next line", "next", {}), act("Next module", "next", {call: true}), act("Put the reference's tensor in place", "substitute", {}), act("End both", "terminate", {})),
      this.problem, this.state, make("h2", "Variables of both"), this.variables,
      el("form", {class: "filters", onsubmit: e => (e.preventDefault(), this.evaluate(input.value))}, input, el("button", {type: "submit"}, "Evaluate")), this.answer));
    viewKeys([{keys: "c, F5", words: "to where they part", run: () => this.act("continue", {until_divergence: true})}, {keys: "n, F10", words: "next line of both", run: () => this.act("next", {})}]);
    this.load();
  }
  close() {}
  async load() {
    try { this.show(await read("debug/twin/status", {twin: this.name})); } catch (error) { this.problem.replaceChildren(failureCard(error, () => this.load())); }
  }
  async act(operation, args) {
    this.problem.replaceChildren(make("div", "…", "dim"));
    try { this.show(await write(`debug/twin/${operation}`, {twin: this.name, ...args})); } catch (error) { this.problem.replaceChildren(failureCard(error)); }
  }
  show(S) {
    this.problem.replaceChildren();
    const side = (title, s) => {
      const at = s?.stop?.location;
      return el("div", {class: "card"}, make("h3", title), facts([["state", s?.state], ["where", at ? `${at.file}:${at.line} ${at.function}` : ""], ["line", at?.text], ["", s?.id ? el("a", {href: linkTo("debug", s.id)}, "open alone") : ""]], "mono"));
    };
    const d = S.divergence;
    this.state.replaceChildren(el("div", {class: "sides"}, side("reference", S.reference), side("candidate", S.candidate)),
      d ? el("div", {class: "card error"}, make("b", "They part here"), facts([["module", d.name], ["error", d.relative === undefined ? d.kind : short(d.relative)], ["noise floor", d.floor === undefined ? "" : short(d.floor)]], "mono")) : make("div", S.compared !== undefined ? `${typeof S.compared === "object" ? JSON.stringify(S.compared) : S.compared} compared so far` : "", "dim"));
    this.drawVariables();
  }
  async drawVariables() {
    try {
      const a = await read("debug/twin/vars", {twin: this.name});
      const words = v => v ? v.tensor ? `${v.tensor.dtype} ${v.tensor.shape.join(" × ")}` : v.text : "–";
      this.variables.replaceChildren(plainTable(["name", "reference", "candidate", "difference"], a.variables.map(v => ({cells: [v.name, words(v.reference), words(v.candidate), v.difference ? short(v.difference.relative ?? v.difference) : ""]}))));
    } catch (error) { this.variables.replaceChildren(make("div", error.message, "dim")); }
  }
  async evaluate(expression) {
    try {
      const a = await write("debug/twin/eval", {twin: this.name, expression}), words = s => s?.value?.text ?? s?.error?.message ?? JSON.stringify(s?.value ?? s);
      this.answer.replaceChildren(el("div", {class: "sides"}, el("div", {class: "card mono"}, words(a.reference)), el("div", {class: "card mono"}, words(a.candidate))), a.difference ? make("div", `difference ${short(a.difference.relative)}`, "dim") : "");
    } catch (error) { this.answer.replaceChildren(failureCard(error)); }
  }
}
