// What happens in the service, as it happens: one stream a browser. The tab that holds the lock reads it and tells the
// others; when it closes, the next one takes over where it was.
import {onState, request} from "./api.js";
import {afterPaint} from "./dom.js";

const listeners = new Set(), channel = new BroadcastChannel("lockstep-events");
let last = "", reading = false;
export function onEvent(run) {
  listeners.add(run);
  return () => listeners.delete(run);
}
function told(event) {
  if (event.id) last = event.id;
  listeners.forEach(run => run(event));
}
channel.onmessage = e => told(e.data);

// The pieces of a server-sent stream, one event each.
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", event = {name: "message", data: "", id: ""};
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const [, field, text] = line.match(/^([^:]*):? ?(.*?)\r?$/);
      if (line.trim() === "") {
        if (event.data) yield event;
        event = {name: "message", data: "", id: ""};
      } else if (field === "event") event.name = text;
      else if (field === "data") event.data += (event.data ? "\n" : "") + text;
      else if (field === "id") event.id = text;
    }
  }
}

async function readAll(signal) {
  for (let pause = 500; !signal.aborted; pause = Math.min(8000, pause * 2)) {
    try {
      const response = await request("/v1/events", {signal, headers: last ? {"Last-Event-ID": last} : {}});
      for await (const {name, data, id} of eventsOf(response)) {
        pause = 500;
        let body = {};
        try { body = JSON.parse(data); } catch { continue; }
        const event = {name, id, body};
        told(event), channel.postMessage(event);
      }
    } catch (error) {
      if (error.status === 404) return;  // this service has no such stream
    }
    await new Promise(done => setTimeout(done, pause));
  }
}

// Where the browser has no locks (a plain address in a network), every tab reads for itself.
export function startEvents() {
  if (reading) return;
  reading = true;
  onState(now => {
    if (now !== "on" || startEvents.begun) return;
    startEvents.begun = true;
    const never = new AbortController().signal;
    afterPaint(() => navigator.locks ? navigator.locks.request("lockstep-events", () => readAll(never)) : readAll(never));
  });
}
