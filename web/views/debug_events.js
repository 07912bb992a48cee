// What happens in one session, as it happens: a part of the one stream of events.
import {onEvent} from "../base/events.js";

export const watchSession = (id, run) => onEvent(e => e.name.startsWith("debug.") && e.body.session === id && run({name: e.name.slice(6)}));
