// Keys: of the page, of the view that is shown, help for them, and Ctrl-K for everything.
import {el, make} from "./dom.js";

const common = [], state = {view: [], commands: () => [], prefix: "", at: 0};

// {keys, words, run}; "g r" is g, then r.
export const pageKeys = list => common.push(...list);
export const viewKeys = (list, commands) => (state.view = list, state.commands = commands || (() => []));

const typing = target => target.closest?.("input, textarea, select, [contenteditable=true]");
const nameOf = e => (e.ctrlKey || e.metaKey ? "Ctrl-" : "") + (e.shiftKey && e.key.length > 1 ? "Shift-" : "") + e.key;

addEventListener("keydown", e => {
  if (e.defaultPrevented || e.altKey) return;
  const key = nameOf(e);
  if (typing(e.target) && !/^(Ctrl-k|F\d+|Shift-F\d+|Escape)$/.test(key)) return;
  if (key === "Enter" && e.target.closest?.("button, a, summary")) return;  // it is that one's own
  if (document.querySelector("dialog[open]") && key !== "Ctrl-k") return;
  if (key === "Escape" && typing(e.target)) return e.target.blur();
  const wanted = state.prefix && performance.now() - state.at < 1500 ? `${state.prefix} ${key}` : key;
  state.prefix = "";
  const all = [...state.view, ...common], found = all.find(k => k.keys.split(", ").includes(wanted));
  if (found) return e.preventDefault(), found.run(e);
  if (all.some(k => k.keys.split(", ").some(one => one.startsWith(wanted + " ")))) state.prefix = wanted, state.at = performance.now(), e.preventDefault();
});

function dialog(cls, ...children) {
  const made = el("dialog", {class: cls, "aria-label": cls === "palette" ? "find" : "keyboard help"}, ...children);
  made.addEventListener("click", e => e.target === made && made.close());
  made.addEventListener("close", () => made.remove());
  document.body.append(made), made.showModal();
  return made;
}

export function showHelp() {
  const list = el("div", {class: "keys"});
  for (const k of [...state.view, ...common]) {
    const keys = el("span", {});
    k.keys.split(", ").forEach((one, i) => keys.append(...(i ? [" "] : []), make("kbd", one)));
    list.append(keys, make("span", k.words));
  }
  dialog("help", el("div", {class: "head"}, make("h2", "Keys", "title")), el("div", {class: "body"}, list));
}

export function showPalette(everywhere) {
  const input = el("input", {type: "text", placeholder: "a view, a run, a tensor, an action", role: "combobox", "aria-expanded": "true", "aria-controls": "found", "aria-autocomplete": "list", autocomplete: "off"});
  const list = el("ul", {id: "found", role: "listbox", "aria-label": "found"}), box = dialog("palette", input, list);
  let shown = [], at = 0;
  const all = [...state.commands(), ...[...state.view, ...common].map(k => ({words: k.words, kind: k.keys, run: k.run}))];
  const draw = () => {
    list.replaceChildren(...shown.map((c, i) => el("li", {role: "option", id: `found${i}`, "aria-selected": String(i === at), onclick: () => pick(i)}, make("span", c.words), make("span", c.kind))));
    input.setAttribute("aria-activedescendant", shown.length ? `found${at}` : "");
    list.children[at]?.scrollIntoView({block: "nearest"});
  };
  const search = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(w => w);
    shown = all.filter(c => words.every(w => (c.words + " " + c.kind).toLowerCase().includes(w))).slice(0, 60), at = 0, draw();
  };
  const pick = i => (box.close(), shown[i]?.run());
  input.addEventListener("input", search);
  input.addEventListener("keydown", e => {
    const by = {ArrowDown: 1, ArrowUp: -1}[e.key];
    if (by) e.preventDefault(), at = Math.max(0, Math.min(shown.length - 1, at + by)), draw();
    if (e.key === "Enter") e.preventDefault(), pick(at);
  });
  search();
  everywhere().then(more => (all.push(...more.filter(m => !all.some(c => c.words === m.words))), search()), () => {});
}
