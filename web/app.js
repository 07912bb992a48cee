// The page: which view is shown, whether the service answers, and the keys that work everywhere.
import {go, here, linkTo, onAddress} from "./base/address.js";
import {hasToken, onState, read, setToken} from "./base/api.js";
import {$, button, el, make} from "./base/dom.js";
import {startEvents} from "./base/events.js";
import {pageKeys, showHelp, showPalette, viewKeys} from "./base/keys.js";

// A view is a module with open(box, address): it fills the box and gives {address(now), close()}.
const VIEWS = [["draw", "Draw", "d"], ["runs", "Runs", "r"], ["compare", "Compare", "c"], ["debug", "Debug", "b"], ["server", "Server", "s"]];
const shown = {name: "", view: null};

export function notice(words, action) {
  const box = $("notice");
  box.hidden = !words;
  box.replaceChildren(...(words ? [make("span", words)] : []), ...(action ? [action] : []), ...(words ? [button("Dismiss", () => notice(""), {class: "quiet"})] : []));
}

function askForToken() {
  const input = el("input", {type: "password", autocomplete: "off", "aria-label": "token", size: 40});
  const form = el("form", {class: "card", onsubmit: e => (e.preventDefault(), setToken(input.value), show(here(), true))},
    make("h2", "This page needs the service's token"), el("p", {}, "Open it with ", make("code", "lockstep serve --open"), ", or paste the text of ", make("code", "service/token"), " in the home folder."),
    el("div", {class: "filters"}, input, el("button", {class: "primary", type: "submit"}, "Continue")));
  $("main").replaceChildren(el("div", {class: "pad"}, form));
  input.focus();
}

async function show(address, anew) {
  const name = VIEWS.some(v => v[0] === address.view) ? address.view : "runs";
  for (const link of $("nav").children) link.toggleAttribute("aria-current", link.dataset.view === name), link.dataset.view === name && link.setAttribute("aria-current", "page");
  if (!hasToken()) return askForToken();
  if (!anew && shown.name === name && shown.view) return shown.view.address(address);
  shown.view?.close?.(), shown.view = null, shown.name = name;
  viewKeys([]);
  document.title = `${VIEWS.find(v => v[0] === name)[1]} · Lockstep`;
  const box = el("div", {class: "view", "data-view": name});
  try {
    const module = await import(`./views/${name}.js`);
    if (shown.name !== name) return;
    $("main").replaceChildren(box);
    shown.view = module.open(box, address);
  } catch (error) {
    $("main").replaceChildren(el("div", {class: "pad"}, make("div", `The view cannot be loaded: ${error.message}`, "card error")));
  }
}

$("nav").append(...VIEWS.map(([name, words]) => el("a", {href: linkTo(name), "data-view": name}, words)));
$("find").addEventListener("click", () => showPalette(everywhere));
$("help").addEventListener("click", showHelp);
// Asked for when somebody looks for something, not before: it would keep the first view waiting.
const everywhere = async () => (await read("runs/list", {limit: 200})).runs.map(run => ({words: run.name ? `${run.name} · ${run.id}` : run.id, kind: "run", run: () => go("runs", run.id)}));
pageKeys([...VIEWS.map(([name, words, key]) => ({keys: `g ${key}`, words: `${words} view`, run: () => go(name)})),
  {keys: "?", words: "these keys", run: showHelp},
  {keys: "Ctrl-k", words: "find anything", run: () => (document.querySelector("dialog[open]")?.close(), showPalette(everywhere))},
  {keys: "/", words: "filter", run: () => document.querySelector("main input[type=search]")?.focus()}]);

onState(now => {
  const [dot, words] = $("state").children;
  dot.className = `dot ${now === "on" ? "" : now === "wait" ? "wait" : "off"}`;
  words.textContent = now === "on" ? "connected" : now === "off" ? "no answer" : now === "token" ? "no token" : "connecting";
  if (now === "off") notice("The server does not answer. The page tries again until it does.");
  else if (now === "on" && onState.was === "off") notice(""), shown.view?.again?.();
  else if (now === "token") askForToken();
  onState.was = now;
});
onAddress(address => show(address));
startEvents();
show(here());
