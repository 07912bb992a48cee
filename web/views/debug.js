// Debug: sessions, and one of them: source, stack, variables, console, output.
import {go, linkTo, patch} from "../base/address.js";
import {read, write} from "../base/api.js";
import {button, el, make} from "../base/dom.js";
import {viewKeys} from "../base/keys.js";
import {secsText} from "../base/numbers.js";
import {emptyBox, failureCard} from "../parts/failure.js";
import {plainTable} from "../parts/table.js";
import {watchSession} from "./debug_events.js";
import {ConsolePart, OutputPart} from "./debug_console.js";
import {SourcePart} from "./debug_source.js";
import {BreaksPart, CheckpointsPart, StackPart, VariablesPart, WatchPart} from "./debug_state.js";

export function open(box, address) {
  let inner = null, shown = null;
  const show = async now => {
    if (now.id === shown) return inner?.address?.(now);
    inner?.close?.(), shown = now.id, box.replaceChildren(), inner = null;
    if (!now.id) inner = new SessionList(box);
    else if (now.id.startsWith("twin:")) {
      const {TwinView} = await import("./debug_twin.js");
      if (shown === now.id) inner = new TwinView(box, now.id.slice(5));
    } else inner = new SessionView(box, now);
  };
  show(address);
  return {address: show, close: () => inner?.close?.(), again: () => inner?.load?.()};
}

class SessionList {
  constructor(box) {
    this.list = el("div", {}), this.problem = el("div", {});
    const script = el("input", {placeholder: "/path/to/script.py", required: true, size: 44, "aria-label": "script"}), words = el("input", {placeholder: "arguments", size: 24, "aria-label": "arguments"}), python = el("input", {placeholder: "python (default: the active one)", size: 26, "aria-label": "Python to use"});
    box.append(el("div", {class: "pad"}, make("h1", "Debug", "title"), el("form", {class: "card", onsubmit: async e => {
      e.preventDefault();
      const cwd = script.value.trim().replace(/\/[^/]*$/, "") || "/";
      try {
        const s = await write("debug/start", {script: script.value.trim(), cwd, ...(words.value.trim() ? {arguments: words.value.trim().split(/\s+/)} : {}), ...(python.value.trim() ? {python: python.value.trim()} : {})});
        go("debug", s.id);
      } catch (error) { this.problem.replaceChildren(failureCard(error)); }
    }}, make("h2", "Start a program"), el("div", {class: "filters"}, script, words, python, el("button", {class: "primary", type: "submit"}, "Start and stop before the first line"))), this.problem, make("h2", "Sessions"), this.list));
    viewKeys([]);
    this.load(), this.timer = setInterval(() => document.hidden || this.load(), 3000);
  }
  close() { clearInterval(this.timer); }
  async load() {
    try {
      const all = (await read("debug/sessions", {limit: 200})).sessions, names = new Set(all.map(s => s.session));
      const twins = all.filter(s => s.session.endsWith("-candidate") && names.has(s.session.replace(/-candidate$/, "-reference"))).map(s => s.session.replace(/-candidate$/, ""));
      this.list.replaceChildren(all.length ? plainTable(["session", "state", "program", "#time"], all.map(s => ({onclick: () => go("debug", s.id), cells: [el("a", {href: linkTo("debug", s.id)}, s.session), s.state, s.program || "", secsText(s.secs ?? NaN)]}))) : emptyBox("No program was started yet.", "lockstep debug start squares.py"),
        ...(twins.length ? [make("h2", "In step"), el("div", {class: "filters"}, ...[...new Set(twins)].map(t => el("a", {class: "button", href: linkTo("debug", `twin:${t}`)}, t)))] : []));
    } catch (error) { this.problem.replaceChildren(failureCard(error, () => this.load())); }
  }
}

const STEPS = [["continue", "Continue", "F5", "c"], ["next", "Next line", "F10", "n"], ["step", "Into", "F11", "i"], ["finish", "Out", "Shift-F11", "o"], ["pause", "Pause", "F6", "p"]];

const TURNS = new Set(["stack", "vars", "eval", "picture", "complete"]);

export class SessionView {
  constructor(box, address) {
    this.id = address.id, this.frame = Number(address.params.frame || 0), this.status = null;
    this.title = make("h1", "", "title"), this.where = make("div", "", "mono dim"), this.problem = el("div", {});
    this.buttons = STEPS.map(([name, words, key]) => button([words, " ", make("kbd", key)], () => this.run(name), {"data-run": name, disabled: true}));
    this.end = button("End", () => this.act("debug/terminate")), this.restart = button("Restart", () => this.act("debug/restart"));
    this.source = new SourcePart(this), this.stack = new StackPart(this), this.variables = new VariablesPart(this), this.watch = new WatchPart(this), this.breaks = new BreaksPart(this), this.checkpoints = new CheckpointsPart(this);
    this.console = new ConsolePart(this), this.output = new OutputPart(this);
    this.parts = [this.stack, this.variables, this.watch, this.breaks, this.checkpoints];
    box.append(el("div", {class: "debug"}, el("div", {class: "head"}, el("div", {class: "crumbs"}, el("a", {href: linkTo("debug")}, "Debug"), "/", this.title), this.where, el("div", {class: "filters"}, ...this.buttons, this.restart, this.end), this.problem),
      el("div", {class: "debug-body"}, el("div", {class: "debug-main"}, this.source.box, this.console.box, this.output.box), el("div", {class: "debug-side"}, ...this.parts.map(p => p.box)))));
    viewKeys([...STEPS.map(([name, words, key, letter]) => ({keys: `${key}, ${letter}`, words, run: () => this.run(name)})), {keys: "b", words: "breakpoint at the marked line", run: () => this.source.toggleHere()}, {keys: "e", words: "evaluate", run: () => this.console.input.focus()},
      {keys: "j", words: "outer frame", run: () => this.setFrame(this.frame + 1)}, {keys: "k", words: "inner frame", run: () => this.setFrame(this.frame - 1)}]);
    this.stopWatching = watchSession(this.id, event => this.event(event));
    this.load();
  }
  close() { this.closed = true, this.stopWatching(), this.parts.forEach(p => p.close?.()); }
  address(now) { this.setFrame(Number(now.params.frame || 0)); }
  get stopped() { return this.status?.state === "stopped"; }
  // The stopped thread answers one question at a time, and refuses a second one meanwhile.
  inTurn(name, run) {
    if (!TURNS.has(name)) return run();
    const answer = (this.turn || Promise.resolve()).then(run);
    this.turn = answer.catch(() => {});
    return answer;
  }
  ask(name, args) { return this.inTurn(name, () => read(`debug/${name}`, {session: this.id, ...args})); }
  tell(name, args) { return this.inTurn(name, () => write(`debug/${name}`, {session: this.id, ...args})); }
  async load() {
    try { this.show(await this.ask("status")); } catch (error) {
      this.problem.replaceChildren(failureCard(error, () => this.load()));
      if (error.status === 404) this.problem.append(el("a", {href: linkTo("debug")}, "All sessions"));
    }
  }
  show(status) {
    if (this.closed) return;
    const before = this.status;
    this.status = status, this.problem.replaceChildren();
    this.title.textContent = status.session;
    const at = status.stop?.location, words = status.state === "stopped" ? `stopped${status.stop?.reason ? ` (${status.stop.reason})` : ""}${at ? ` · ${at.file.split("/").at(-1)}:${at.line} · ${at.function}` : ""}` : status.state === "ended" ? `ended: ${status.end?.how || ""} ${status.end?.code ?? ""}` : status.state;
    this.where.textContent = words;
    const told = status.stop?.description || "";  // where it stands is told already
    if (told && this.stopped && !(at && told.endsWith(`${at.file}:${at.line}`))) this.where.append(make("div", told, status.stop.exception ? "bad" : "dim"));
    for (const b of this.buttons) b.disabled = b.dataset.run === "pause" ? status.state !== "running" : !this.stopped;
    this.end.disabled = status.state === "ended";
    if (this.stopped && (before?.stop?.count !== status.stop?.count || before?.state !== "stopped")) this.frame = before ? 0 : this.frame;
    this.draw();
  }
  draw() {
    const at = this.stopped ? this.status.stop.location : null;
    this.source.show(at), this.parts.forEach(p => p.draw()), this.output.draw();
  }
  setFrame(k) {
    if (!this.stopped || k < 0 || k === this.frame) return;
    this.frame = k, patch({frame: k || ""}, {push: true});
    this.parts.forEach(p => p.draw()), this.stack.showFrame();
  }
  async run(name) {
    if (name === "pause" ? this.status?.state !== "running" : !this.stopped) return;
    this.buttons.forEach(b => b.disabled = true);
    try { this.show({...this.status, ...(await this.tell(name, {max_wait: 1}))}); } catch (error) { this.problem.replaceChildren(failureCard(error)), this.load(); }
  }
  async act(name) {
    try { this.show(await write(name, {session: this.id})); } catch (error) { this.problem.replaceChildren(failureCard(error)); }
  }
  event({name}) {
    if (name === "output") this.output.draw();
    else if (name === "breakpoint") this.breaks.draw(), this.source.marks();
    else this.load();
  }
}
