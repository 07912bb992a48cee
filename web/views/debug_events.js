// What happens in one session, as it happens.
import {request} from "../base/api.js";
import {eventsOf} from "../base/events.js";

export function watchSession(id, run) {
  const stop = new AbortController();
  (async () => {
    for (let after = 0, pause = 300; !stop.signal.aborted; pause = Math.min(5000, pause * 2)) {
      try {
        for await (const event of eventsOf(await request(`/v1/debug/events?session=${encodeURIComponent(id)}&after=${after}`, {signal: stop.signal}))) {
          pause = 300;
          if (event.id) after = Number(event.id);
          run({name: event.name, body: JSON.parse(event.data)});
        }
      } catch (error) { if (error.name === "AbortError" || error.status === 404) return; }
      await new Promise(done => setTimeout(done, pause));
    }
  })();
  return () => stop.abort();
}
