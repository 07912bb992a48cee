// Runs before everything else: asks for the first thing that the view of the address will want to know while the page
// itself is still on its way. A test compares what is asked here with what the views ask.
{
  const [, given, view, id = "", query = ""] = (location.hash || "#").match(/^#(?:token=([^/&]*))?\/?(\w*)(?:\/([^?]*))?(?:\?(.*))?/s);
  const shown = view === "runs" && id ? "run" : ["draw", "compare", "debug", "server"].includes(view) ? view : "runs";
  const params = new URLSearchParams(query), name = decodeURIComponent(id), ask = (operation, args) => `${operation}?${new URLSearchParams(args)}`;
  const compared = ["reference", "candidate", "map", "only", "weights", "propose", "partial"].filter(q => params.get(q)).map(q => [q, params.get(q)]);
  const question = {runs: ask("runs/list", {limit: 100}), run: ask("runs/tensors", {run: name, limit: 200, from: 0}), draw: "models", server: "health", debug: name && !name.startsWith("twin:") ? ask("debug/status", {session: name}) : "",
    compare: params.get("reference") && params.get("candidate") ? ask("compare/rows", [...compared, ["limit", 100000]]) : ""}[shown];
  const token = given ? decodeURIComponent(given) : sessionStorage.getItem("lockstep-token");
  // Taken by the first request for it, and by no other.
  window.asked = new Map(token && question ? [[`/v1/${question}`, fetch(`/v1/${question}`, {cache: "no-store", credentials: "omit", headers: {Authorization: `Bearer ${token}`}})]] : []);
  window.asked.forEach(answer => answer.catch(() => {}));
}
