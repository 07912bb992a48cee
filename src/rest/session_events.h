// What happens in a debugged program, as server-sent events. A stream that waits takes no thread.
#pragma once
#include <memory>

#include "debugger/session.h"
#include "http/http_server.h"

namespace lockstep {

// From the event behind number `after` until the program's end.
HttpResponse session_events(ConnectionHub& hub, std::shared_ptr<Session> session, int64_t after);

}  // namespace lockstep
