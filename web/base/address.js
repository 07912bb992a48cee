// What one sees is in the address, behind the "#": #/runs/ID?tensor=12. A link shows it to another person, and back and
// forward work. The fragment never leaves the browser; the token comes in it once and is taken out at once.
const KEY = "lockstep-token";

export function takeToken() {
  const given = location.hash.match(/^#token=([^/&]+)(.*)$/);
  if (given) {
    sessionStorage.setItem(KEY, decodeURIComponent(given[1]));
    history.replaceState(null, "", location.pathname + "#" + (given[2].replace(/^&/, "") || "/"));
  }
  return sessionStorage.getItem(KEY) || "";
}
export const keepToken = token => sessionStorage.setItem(KEY, token);

export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const parts = path.split("/").map(decodeURIComponent), params = {};
  for (const [name, value] of new URLSearchParams(query)) params[name] = value;
  return {view: parts[0] || "", id: parts.slice(1).join("/"), params};
}

export function linkTo(view, id = "", params = {}) {
  const kept = Object.entries(params).filter(([, v]) => v !== undefined && v !== null && v !== "");
  const query = new URLSearchParams(kept).toString();
  return `#/${view}${id ? "/" + encodeURIComponent(id) : ""}${query ? "?" + query : ""}`;
}

export const here = () => parse(location.hash);

// A step that "back" undoes.
export function go(view, id, params) {
  const to = linkTo(view, id, params);
  if (to !== location.hash) history.pushState(null, "", to), changed();
}

// A detail of what is shown: the selection, a filter. With `quietly` nobody is told, because the caller shows it already.
export function patch(params, {push = false, quietly = true} = {}) {
  const now = here(), to = linkTo(now.view, now.id, {...now.params, ...params});
  if (to === location.hash) return;
  history[push ? "pushState" : "replaceState"](null, "", to);
  if (!quietly) changed();
}

// The part of a tensor that is seen, as an address holds it: "top,left,rows,columns".
export const windowText = w => w.rows ? [w.top, w.left, w.rows, w.columns].join(",") : "";
export function windowOf(text) {
  const [top, left, rows, columns] = (text || "").split(",").map(Number);
  return rows > 0 && columns > 0 ? {top, left, rows, columns} : {};
}

const listeners = new Set();
const changed = () => listeners.forEach(run => run(here()));
export function onAddress(run) { listeners.add(run); }
addEventListener("popstate", changed);
addEventListener("hashchange", changed);
