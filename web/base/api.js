// The service's operations. The token travels in a header alone.
import {keepToken, takeToken} from "./address.js";

let token = takeToken();
export const hasToken = () => token !== "";
export function setToken(text) { token = text.trim(), keepToken(token); }

export class ApiError extends Error {
  constructor(status, error) {
    super(error.message || "the service did not answer");
    this.status = status, this.code = error.code || "", this.hint = error.hint || "", this.param = error.param;
  }
}

// Who wants to know whether the service answers: "on", "off", "token".
const watchers = new Set();
let state = "wait";
export const onState = run => (watchers.add(run), run(state));
function tell(now) {
  if (now === state) return;
  state = now, watchers.forEach(run => run(now));
}

export async function request(path, {method = "GET", headers = {}, body, signal} = {}) {
  let response;
  const early = method === "GET" && window.asked?.get(path);
  window.asked?.delete(path);
  try {
    response = early ? await early : await fetch(path, {method, body, signal, cache: "no-store", credentials: "omit", headers: {...headers, Authorization: `Bearer ${token}`}});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    tell("off"), awaitService();
    throw new ApiError(0, {message: "The server does not answer.", code: "gone"});
  }
  if (response.status === 401) tell("token");
  else tell("on");
  if (response.ok) return response;
  let error = {};
  try { error = (await response.json()).error || {}; } catch { /* no JSON: the status alone */ }
  throw new ApiError(response.status, {message: `${response.status} ${response.statusText}`, ...error});
}

let waiting = false;
async function awaitService() {
  if (waiting) return;
  waiting = true;
  for (let pause = 250; state === "off"; pause = Math.min(4000, pause * 1.5)) {
    await new Promise(done => setTimeout(done, pause));
    try { await request("/v1/health"); } catch { /* again */ }
  }
  waiting = false;
}

const queryOf = args => {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(args || {})) {
    if (value === undefined || value === null || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, one);
  }
  const text = query.toString();
  return text ? "?" + text : "";
};

// An operation that reads: "runs/list".
export const read = async (name, args, options) => (await request(`/v1/${name}${queryOf(args)}`, options)).json();
// One that changes something.
export const write = async (name, body, options) =>
  (await request(`/v1/${name}`, {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(body || {}), ...options})).json();

// One whose answer is bytes: a line of JSON, then the bytes, which begin at a multiple of four.
export async function readBytes(name, args, options) {
  const raw = await (await request(`/v1/${name}${queryOf(args)}`, {...options, headers: {Accept: "application/octet-stream"}})).arrayBuffer();
  const bytes = new Uint8Array(raw), end = bytes.indexOf(10) + 1;
  return {...JSON.parse(new TextDecoder().decode(bytes.subarray(0, end))), buffer: raw, at: end};
}
export const floatsOf = (answer, count, skip = 0) => new Float32Array(answer.buffer, answer.at + skip * 4, count);
