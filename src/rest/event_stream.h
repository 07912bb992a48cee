// The beginning of every stream of server-sent events: its head, and a comment that shows that we are there.
#pragma once
#include <memory>

#include "http/http_server.h"
#include "studio/parameter_error.h"

namespace lockstep {

inline constexpr size_t kMostWaitingEventBytes = 16 << 20;  // that may wait for a slow reader of events

inline std::string event_stream_head() {
  HttpResponse head;
  head.type = "text/event-stream";
  head.headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}};
  return http_stream_head(head);
}

// BusyError: too many connections wait.
inline std::shared_ptr<WaitingConnection> make_waiting(ConnectionHub& hub, size_t most_bytes, bool beats) {
  auto connection = hub.make(most_bytes, beats);
  if (!connection) throw BusyError("[http] too many connections wait; try again in a second", "too_many_requests", 1);
  return connection;
}

inline std::shared_ptr<WaitingConnection> make_event_stream(ConnectionHub& hub) {
  auto connection = make_waiting(hub, kMostWaitingEventBytes, true);
  connection->send(event_stream_head() + ": \n\n");
  return connection;
}

}  // namespace lockstep
