// Layer: tensor with debugger/agent_socket.cpp
// Fuzzes what a debugged program sends: messages are taken or left, in bounded memory, however they are cut into
// pieces.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/platform/descriptors.h"
#include "debugger/agent_socket.h"
#include "debugger/session_fields.h"
#include "fuzz_input.h"
#include "structure.h"

namespace {

const std::vector<std::string> kWordsOfAgents = {
    "event",  "hello",  "stopped",  "continued", "final",   "exited",   "output",   "breakpoint", "token",
    "again",  "stops",  "thread",   "id",        "name",    "count",    "change",   "removed",    "done",
    "ok",     "result", "resumed",  "error",     "message", "seq",      "category", "program",    "text",
    "reason", "stop",   "location", "file",      "line",    "function", "report",   "why"};

const std::vector<std::string> kExamplesOfAgents = {
    R"({"event":"hello","token":"t","pid":1,"python":"3.11","again":true,"stops":2,"stopped":[{"event":"stopped","thread":{"id":1,"name":"Main"},"count":1}]})",
    R"({"event":"stopped","thread":{"id":1,"name":"Main"},"reason":"breakpoint","count":1,"location":{"file":"a.py","line":1,"function":"f"}})",
    R"({"event":"continued","thread":1})",
    R"({"event":"breakpoint","change":"removed","breakpoint":{"id":1}})",
    R"({"id":1,"ok":true,"result":{"resumed":[1,2]}})",
    R"({"id":2,"ok":false,"error":{"code":"bad_input","message":"no"}})",
    R"({"event":"output","category":"program","text":"x"})",
    R"({"event":"exited","code":0})"};

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return lockstep::mutate_json_lines(data, size, max_size, seed, 1, kWordsOfAgents, kExamplesOfAgents);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    if (bytes.size() < 2) return;
    int ends[2];
    if (make_socket_pair(ends) != 0) return;
    for (const int end : ends) ::fcntl(end, F_SETFL, O_NONBLOCK);
    AgentSocket socket(ends[0]);
    const size_t step = 1 + static_cast<size_t>(bytes[0]);
    std::string text(reinterpret_cast<const char*>(bytes.data()) + 1, bytes.size() - 1);
    if (static_cast<int>(bytes[0]) % 2 == 1) text = R"({"event":"stopped","thread":{"id":1},"stop":)" + text + "}\n";
    int taken = 0;
    const auto use = [&](Json message) {
      ++taken;
      if (!message.is_object()) std::abort();
      static_cast<void>(whole(message, "seq") + thread_of(message));
      static_cast<void>(message.dump(-1, ' ', false, Json::error_handler_t::replace));
    };
    for (size_t at = 0; at < text.size(); at += step) {
      if (send_without_signal(ends[1], text.data() + at, std::min(step, text.size() - at)) < 0) break;
      if (!socket.receive(use)) break;
    }
    ::close(ends[1]);
    while (socket.receive(use)) {
    }
    if (taken > static_cast<int>(text.size())) std::abort();
  });
}
