// The map of names: what was found, mended by hand, saved as a map file, and used for the comparison.
import {go} from "../base/address.js";
import {read, write} from "../base/api.js";
import {button, el, make} from "../base/dom.js";
import {failureCard} from "../parts/failure.js";

export class MapEditor {
  constructor(view) {
    this.view = view, this.rules = [], this.body = el("tbody", {}), this.out = el("div", {});
    this.name = el("input", {placeholder: "name of the map", value: "map", "aria-label": "name of the map file", size: 18});
    const found = view.answer.summary.map || {}, unsure = found.unsure || [];
    for (const rule of found.rules || []) this.add(rule, true);
    const save = button("Save and compare", () => this.save(), {class: "primary"});
    this.box = el("details", {open: false}, make("summary", `Map of names${this.rules.length ? `: ${this.rules.length} rules found` : ""}`),
      el("div", {class: "card"}, make("div", "Names of your run on the left, names of the reference on the right; * stands for anything, # for a number. Only the rules that are ticked are saved.", "dim"),
        el("div", {class: "scroll low"}, el("table", {class: "map-rules"}, el("thead", {}, el("tr", {}, ...["use", "yours", "reference", "why"].map(w => make("th", w)), make("td"))), this.body)),
        unsure.length ? el("div", {}, make("h3", "Not sure"), ...unsure.slice(0, 50).map(u => make("div", u, "mono dim"))) : "",
        el("div", {class: "filters"}, button("Add a rule", () => this.add({candidate: "", reference: ""}, true)), button("Propose more", () => this.propose()), this.name, save), this.out));
    this.suggest();
  }
  suggest() {
    const names = (side, id) => el("datalist", {id}, ...[...new Set(this.view.answer.alone[side].map(r => r[0]))].slice(0, 2000).map(n => el("option", {value: n})));
    this.box.append(names("candidate", "alone-yours"), names("reference", "alone-reference"));
  }
  add(rule, used) {
    const entry = {rule: {...rule}, used};
    const input = (field, list) => el("input", {value: rule[field] || "", list, class: "mono", "aria-label": field, oninput: e => entry.rule[field] = e.target.value});
    const row = el("tr", {}, el("td", {}, el("input", {type: "checkbox", checked: used, "aria-label": "use this rule", oninput: e => entry.used = e.target.checked})), el("td", {}, input("candidate", "alone-yours")), el("td", {}, input("reference", "alone-reference")),
      make("td", [rule.why, rule.permute && `axes ${rule.permute.join(" ")}`].filter(w => w).join("; "), "dim"), el("td", {}, button("Remove", () => (row.remove(), this.rules.splice(this.rules.indexOf(entry), 1)), {class: "quiet"})));
    this.rules.push(entry), this.body.append(row);
  }
  async propose() {
    this.out.replaceChildren(make("div", "Looking for partners by content, place and name …", "dim"));
    try {
      const S = (await read("compare/rows", {...this.view.question, propose: true, limit: 1})).summary, known = new Set(this.rules.map(r => `${r.rule.candidate}\n${r.rule.reference}`));
      const fresh = (S.map?.rules || []).filter(r => !known.has(`${r.candidate}\n${r.reference}`));
      fresh.forEach(r => this.add(r, true));
      this.out.replaceChildren(make("div", fresh.length ? `${fresh.length} more rules` : "nothing more was found", "dim"));
    } catch (error) { this.out.replaceChildren(failureCard(error)); }
  }
  async save() {
    const rules = this.rules.filter(r => r.used && r.rule.candidate && r.rule.reference).map(r => r.rule);
    try {
      const saved = await write("maps/save", {name: this.name.value.trim(), map: JSON.stringify({rules})});
      const {propose, ...question} = this.view.question;
      void propose;
      go("compare", "", {...question, map: saved.path});
    } catch (error) { this.out.replaceChildren(failureCard(error)); }
  }
}
