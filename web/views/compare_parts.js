// What stands around the chosen pair: the lines inside the call, a finer record, the pictures, the ledger.
import {go} from "../base/address.js";
import {read, readBytes, write} from "../base/api.js";
import {button, el, make} from "../base/dom.js";
import {copyText, failureCard} from "../parts/failure.js";
import {ledgerParts} from "../parts/ledger.js";
import {likenessWords} from "../parts/pictures.js";
import {insideCards} from "../parts/source_pair.js";
import "../parts/picture_compare.js";

// Runs both programs once more and names the lines.
export class ZoomPart {
  constructor(view) {
    this.answer = el("div", {});
    const run = button("Find the line", async () => {
      run.disabled = true, this.answer.replaceChildren(make("div", "Both programs run once more, traced …", "dim"));
      const {reference, candidate, map} = view.question;
      try { this.answer.replaceChildren(make("h2", "Lines"), ...insideCards(await write("zoom", {reference, candidate, ...(map ? {map} : {})}))); } catch (error) { this.answer.replaceChildren(failureCard(error)); }
      run.disabled = false;
    });
    this.box = el("div", {}, el("div", {class: "filters"}, run, make("span", "runs both programs and traces the first call that diverges", "dim")), this.answer);
  }
}

const quoted = word => /^[\w./:=@%+,-]+$/.test(word) ? word : `'${word.replace(/'/g, "'\\''")}'`;

// How the candidate was run, for an operation that runs it again; null where its run does not say.
function programOf(view) {
  const {argv, cwd} = view.answer.runs.candidate.header.program || {};
  return Array.isArray(argv) && argv.length ? {program: argv, ...(cwd ? {cwd} : {})} : null;
}

// "Record this finer": the command, or the record itself.
export class FinerRecord {
  constructor(view, first) {
    const run = view.answer.runs.candidate, program = programOf(view);
    const modules = first.kind === "glue" && first.parent ? `${first.parent}*` : `${first.stage}*`, name = run.header.name || "finer";
    const words = ["lockstep", "record", "--inputs", "--modules", modules, "--name", name, "--", ...(program?.program || ["python", "your_script.py"])].map(quoted).join(" ");
    const copy = button("Copy", () => copyText(words, copy)), out = el("div", {}), start = button("Run it", async () => {
      start.disabled = true, out.replaceChildren(make("div", "The program is running and is recorded …", "dim"));
      try {
        const made = await write("record", {...program, modules, inputs: true, name});
        out.replaceChildren(el("div", {class: "filters"}, make("span", `${made.records} records, exit status ${made.exit_code}`), button("Compare with it", () => go("compare", "", {...view.question, candidate: made.run}))));
      } catch (error) { out.replaceChildren(failureCard(error)); }
      start.disabled = false;
    }, {disabled: !program});
    this.box = el("details", {}, make("summary", "Record this finer"), el("div", {class: "card"}, make("code", words), el("div", {class: "filters"}, copy, start), out));
  }
}

export class ComparedPictures {
  constructor(view) {
    this.view = view, this.addresses = [], this.box = el("div", {});
    view.answer.images.slice(0, 4).forEach((image, k) => this.show(image, k));
  }
  close() { this.addresses.forEach(a => URL.revokeObjectURL(a)); }
  async show(image, k) {
    const picture = el("ls-picture", {}), side = async name => {
      const a = await readBytes("compare/picture", {...this.view.question, image: k, side: name}), address = URL.createObjectURL(new Blob([new Uint8Array(a.buffer, a.at)], {type: "image/png"}));
      this.addresses.push(address);
      return address;
    };
    if (!k) this.box.append(make("h2", "Pictures"));
    this.box.append(picture);
    try {
      const [reference, candidate, difference] = await Promise.all([side("reference"), side("candidate"), side("difference").catch(() => null)]);
      picture.show(reference, candidate, difference, `${image.name}: ${likenessWords(image)}`);
    } catch (error) { picture.replaceWith(failureCard(error)); }
  }
}

// From two records of the candidate: as it is, and with every tensor replaced by the reference's.
export class LedgerPart {
  constructor(view) {
    const {reference, candidate, map} = view.question, out = el("div", {}), list = el("datalist", {id: "ledger-runs"}), program = programOf(view);
    const input = el("input", {list: "ledger-runs", placeholder: "latest:ledger-substituted", "aria-label": "run with the reference's tensors", size: 28});
    const show = async () => {
      try { out.replaceChildren(...ledgerParts(await read("compare/ledger", {reference, candidate, map, substituted: input.value.trim() || "latest:ledger-substituted"}))); } catch (error) { out.replaceChildren(failureCard(error)); }
    };
    const start = button("Run it", async () => {
      start.disabled = true, out.replaceChildren(make("div", "Your program runs on the reference's tensors …", "dim"));
      try {
        const made = await write("record", {...program, name: "ledger-substituted", reference, substitute: "*"});
        input.value = made.run;
        await show();
      } catch (error) { out.replaceChildren(failureCard(error)); }
      start.disabled = false;
    }, {disabled: !program || !!map});  // names that a map changes are for the command
    const offer = () => list.children.length || read("runs/list", {limit: 200}).then(a => list.replaceChildren(...a.runs.map(r => el("option", {value: r.id}, r.name))), () => {});
    this.box = el("details", {ontoggle: offer}, make("summary", "Error ledger"), el("div", {class: "card"}, make("div", "What each stage makes itself and what it was handed. It needs a second record of your program, run on the reference's tensors:", "dim"),
      make("code", ["lockstep", "ledger", ...(map ? ["--map", map] : []), reference, "--", ...(program?.program || ["python", "your_script.py"])].map(quoted).join(" ")), el("div", {class: "filters"}, start, make("span", "or one that is there:", "dim"), input, button("Show the ledger", show), list), out));
  }
}
