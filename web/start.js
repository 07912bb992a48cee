// Runs before everything else. Asks for the files of the view that the address names, and for the first thing that it
// will want to know, while the page itself is still on its way: imports would find them one after the other, and ask
// only then. Tests compare both lists with what the views import and ask.
{
  const table = ["base/numbers", "parts/failure", "parts/table"], heat = ["parts/canvas", "parts/bars", "parts/heat", "parts/heat_figure", "parts/module_tree"];
  const FILES = {
    draw: ["views/draw", "views/draw_gallery", "views/draw_inputs", "base/numbers", "parts/failure", "parts/picture_compare"],
    runs: ["views/runs", ...table],
    run: ["views/runs", "views/run", "views/tensor", ...table, ...heat, "parts/lines"],
    compare: ["views/compare", "views/compare_map", "views/compare_pair", "views/compare_parts", ...table, ...heat, "parts/curve", "parts/findings", "parts/ledger", "parts/picture_compare", "parts/pictures", "parts/rows", "parts/source_pair", "parts/step_grid"],
    debug: ["views/debug", "views/debug_console", "views/debug_events", "views/debug_source", "views/debug_state", ...table],
    server: ["views/server", "base/metrics", ...table, "parts/canvas", "parts/lines"],
  };
  const [, given, view, id = "", query = ""] = (location.hash || "#").match(/^#(?:token=([^/&]*))?\/?(\w*)(?:\/([^?]*))?(?:\?(.*))?/s), shown = view === "runs" && id ? "run" : view in FILES ? view : "runs";
  const params = new URLSearchParams(query), name = decodeURIComponent(id), ask = (operation, args) => `${operation}?${new URLSearchParams(args)}`;
  const compared = ["reference", "candidate", "map", "only", "weights", "propose", "partial"].filter(q => params.get(q)).map(q => [q, params.get(q)]);
  const question = {runs: ask("runs/list", {limit: 100}), run: ask("runs/tensors", {run: name, limit: 100000, from: 0}), draw: "models", server: "health", debug: name && !name.startsWith("twin:") ? ask("debug/status", {session: name}) : "",
    compare: params.get("reference") && params.get("candidate") ? ask("compare/rows", [...compared, ["limit", 100000]]) : ""}[shown];
  const token = given ? decodeURIComponent(given) : sessionStorage.getItem("lockstep-token");
  for (const file of FILES[shown]) {
    const link = document.createElement("link");
    link.rel = "modulepreload", link.href = new URL(`${file}.js`, document.currentScript.src).href;
    document.head.append(link);
  }
  // Taken by the first request for it, and by no other.
  window.asked = new Map(token && question ? [[`/v1/${question}`, fetch(`/v1/${question}`, {cache: "no-store", credentials: "omit", headers: {Authorization: `Bearer ${token}`}})]] : []);
  window.asked.forEach(answer => answer.catch(() => {}));
}
