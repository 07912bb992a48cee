// Layer: dap
// Fuzzes what a client of the Debug Adapter Protocol sends: as bytes, cut into pieces anywhere, and as messages in good
// frames. Whatever comes, each request gets one answer, every message of ours can be read again, and memory is bounded.
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "dap/adapter.h"
#include "dap/fields.h"
#include "dap/log_message.h"
#include "dap/message.h"
#include "fuzz_input.h"
#include "structure.h"

namespace {

using lockstep::Json;

const std::vector<std::string> kWordsOfEditors = {"seq",
                                                  "type",
                                                  "request",
                                                  "command",
                                                  "arguments",
                                                  "initialize",
                                                  "launch",
                                                  "attach",
                                                  "setBreakpoints",
                                                  "setFunctionBreakpoints",
                                                  "setExceptionBreakpoints",
                                                  "configurationDone",
                                                  "continue",
                                                  "next",
                                                  "stackTrace",
                                                  "scopes",
                                                  "variables",
                                                  "evaluate",
                                                  "setVariable",
                                                  "completions",
                                                  "restart",
                                                  "disconnect",
                                                  "source",
                                                  "modules",
                                                  "cancel",
                                                  "lockstep/operation",
                                                  "threadId",
                                                  "frameId",
                                                  "variablesReference",
                                                  "path",
                                                  "line",
                                                  "breakpoints",
                                                  "condition",
                                                  "hitCondition",
                                                  "logMessage",
                                                  "filter",
                                                  "start",
                                                  "count",
                                                  "expression",
                                                  "program",
                                                  "env"};

const std::vector<std::string> kExamplesOfEditors = {
    R"({"seq":1,"type":"request","command":"initialize","arguments":{"adapterID":"a","linesStartAt1":false}})",
    R"({"seq":2,"type":"request","command":"launch","arguments":{"program":"a.py","args":["x"],"env":{"A":null},"stopOnEntry":true}})",
    R"({"seq":3,"type":"request","command":"setBreakpoints","arguments":{"source":{"path":"/a.py"},"breakpoints":[{"line":3,"condition":"x","hitCondition":"% 2","logMessage":"a {b['}']} {{c}}"}]}})",
    R"({"seq":4,"type":"request","command":"configurationDone"})",
    R"({"seq":5,"type":"request","command":"stackTrace","arguments":{"threadId":1,"startFrame":0,"levels":20}})",
    R"({"seq":6,"type":"request","command":"scopes","arguments":{"frameId":1}})",
    R"({"seq":7,"type":"request","command":"variables","arguments":{"variablesReference":2,"filter":"indexed","start":0,"count":10}})",
    R"({"seq":8,"type":"request","command":"evaluate","arguments":{"expression":"x","frameId":1,"context":"hover"}})",
    R"({"seq":9,"type":"request","command":"completions","arguments":{"text":"a\nb.","column":3,"line":2,"frameId":1}})",
    R"({"seq":10,"type":"request","command":"lockstep/operation","arguments":{"operation":"debug why","arguments":{"which":"1"}}})",
    R"({"seq":11,"type":"request","command":"disconnect","arguments":{"terminateDebuggee":true}})"};

// One answer that fits every operation.
Json any_answer() {
  static const Json answer = lockstep::parse_json(
      R"({"id":"s","session":"s","state":"stopped","pid":7,"program":"a.py","events":0,"total":1,"next":1,"start":0,
          "stop":{"reason":"exception","thread":{"id":1},"exception":{"type":"E","traceback":["x"],"cause":{"type":"F"}}},
          "threads":[{"id":1,"name":"Main","state":"stopped"}],
          "frames":[{"index":0,"location":{"file":"<string>","line":3,"function":"f","module":"m"},"library":true}],
          "variables":[{"name":"x","expression":"x","parts":{"named":1,"indexed":2},"value":{"type":"T","text":"t",
                        "tensor":{"shape":[2],"dtype":"float32","stats":{"min":0.5,"nan":1},"values":[1,2.5]}}}],
          "value":{"type":"T","text":"t"},"kept":"_kept[0]","parts":{"named":1,"indexed":0},"assigned":["x"],
          "breakpoint":{"id":1,"state":"pending","line":3,"places":[{"file":"/a.py","line":3}]},
          "completions":[{"name":"x","kind":"value"}],"files":[{"file":"/a.py","module":"a"}],"lines":["x\n"],"first":1,
          "executable":[1,2],"sessions":[{"pid":7,"id":"s","state":"running"}]})",
      "the example");
  return answer;
}

// What we send is read as a client reads it.
class Judge {
 public:
  void take(const std::string& bytes) {
    const std::lock_guard lock(mutex_);
    reader_.feed(bytes);
    while (const auto message = reader_.next()) {
      if (lockstep::dap::whole(*message, "seq", -1) != ++last_) std::abort();
      answers_ += lockstep::dap::text(*message, "type") == "response";
    }
  }
  int answers() {
    const std::lock_guard lock(mutex_);
    return answers_;
  }

 private:
  std::mutex mutex_;
  lockstep::DapReader reader_;
  int64_t last_ = 0;
  int answers_ = 0;
};

std::string stream_from(std::string_view rest, bool raw) {
  if (raw) return std::string(rest);
  std::string stream;
  for (size_t at = 0; at < rest.size();) {  // a message a line, in good frames
    const size_t end = std::min(rest.find('\n', at), rest.size());
    const std::string body(rest.substr(at, end - at));
    stream += "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    at = end + 1;
  }
  return stream;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (size > 0 && data[0] % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  return lockstep::mutate_json_lines(data, size, max_size, seed, 1, kWordsOfEditors, kExamplesOfEditors);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  return fuzz_one(data, size, [](std::span<const std::byte> bytes) {
    if (bytes.size() < 2) return;
    const auto first = static_cast<unsigned>(bytes[0]);
    const std::string stream =
        stream_from({reinterpret_cast<const char*>(bytes.data()) + 1, bytes.size() - 1}, first % 2 == 0);
    static_cast<void>(log_expression(stream));
    DapService service;
    service.call = [](const Operation& operation, const Json& given, CallControl&) {
      static_cast<void>(checked_arguments(operation, given));  // as the service does before it calls
      return any_answer();
    };
    service.follow = [](const std::string&, int64_t, const std::function<bool(const Json&)>& use,
                        const std::function<bool()>&) {
      int64_t number = 0;
      for (const char* kind : {"stopped", "output", "continued", "breakpoint", "ended"}) {
        Json event = any_answer()["stop"];
        event.update(Json{{"number", ++number}, {"event", kind}, {"text", "x"}, {"breakpoint", {{"id", 1}}}});
        if (!use(event)) return;
      }
    };
    Judge judge;
    DapReader reader;
    DapAdapter adapter(service, [&](const std::string& sent) { judge.take(sent); });
    const size_t step = 1 + first / 2;
    for (size_t at = 0; at < stream.size(); at += step) {
      reader.feed(std::string_view(stream).substr(at, step));
      while (const auto message = reader.next()) {
        const int before = judge.answers();
        adapter.answer(*message);
        const bool request = dap::text(*message, "type") == "request";
        if (judge.answers() != before + (request ? 1 : 0)) std::abort();
      }
    }
  });
}
