#include "rest/session_events.h"

#include "base/escape.h"
#include "base/shown_json.h"
#include "rest/event_stream.h"

namespace lockstep {

HttpResponse session_events(ConnectionHub& hub, std::shared_ptr<Session> session, int64_t after) {
  const auto connection = make_event_stream(hub);
  connection->fill_from([session, after](std::string& piece) mutable {
    const Session::Events told = session->events(after);
    for (const Json& event : told.fresh) {
      after = event["number"].get<int64_t>();
      piece += "id: " + std::to_string(after) + "\nevent: " + escaped(event.value("event", std::string("message"))) +
               "\ndata: " + shown_json(event) + "\n\n";
    }
    return !told.last;
  });
  const int follower = session->follow([weak = std::weak_ptr<WaitingConnection>(connection)] {
    if (const auto line = weak.lock()) line->ask();
  });
  connection->when_gone([session, follower] { session->leave(follower); });
  HttpResponse response;
  response.waiting = connection;
  return response;
}

}  // namespace lockstep
