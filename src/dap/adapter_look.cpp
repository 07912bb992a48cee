// threads, stackTrace, scopes, exceptionInfo, completions.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "dap/adapter.h"
#include "dap/fields.h"

namespace lockstep {
namespace {

using dap::field;
using dap::flag;
using dap::text;
using dap::whole;

constexpr int64_t kMostFramesAtOnce = 1000;

// A part of an answer where it lies: a deep stack is a large tree to copy.
const Json& part_of(const Json& object, const char* name) {
  static const Json kNone;
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? *found : kNone;
}

Json exception_details(const Json& exception, int depth = 0) {
  Json details{{"message", text(exception, "message")},
               {"typeName", text(exception, "type")},
               {"fullTypeName", text(exception, "qualified")}};
  std::string stack;
  for (const Json& line : dap::list(exception, "traceback"))
    if (line.is_string()) stack += line.get<std::string>() + "\n";
  details["stackTrace"] = stack;
  if (const Json cause = field(exception, "cause"); cause.is_object() && depth < 4)
    details["innerException"] = Json::array({exception_details(cause, depth + 1)});
  return details;
}

}  // namespace

// A frame of a thread that stands; without one the innermost of the thread that stopped last.
FrameReference DapAdapter::frame_of(const Json& arguments) {
  const Json number = field(arguments, "frameId");
  if (!number.is_number_integer()) {
    const std::lock_guard lock(state_mutex_);
    if (stops_.empty()) fail(Code::kConflict, "dap", "the program is running", {.hint = "pause"});
    return {0, 0};
  }
  const auto found = references_.frame(whole(arguments, "frameId"));
  if (!found) fail(Code::kNotFound, "dap", "this frame is gone: its thread has gone on");
  return *found;
}

Json DapAdapter::threads(const Json&, CallControl& control) {
  Json shown = Json::array();
  if (ended_) return {{"threads", shown}};
  const std::lock_guard ordered(order_);  // no thread stops between the look and what is told of it
  std::set<int64_t> now;
  for (const Json& thread : dap::list(call("debug threads", Json::object(), control), "threads")) {
    now.insert(whole(thread, "id"));
    shown.push_back({{"id", threads_.number_of(whole(thread, "id"))}, {"name", text(thread, "name")}});
  }
  for (const int64_t id : now) tell_thread(id);
  for (const int64_t id : std::exchange(known_threads_, now)) {
    if (now.contains(id)) continue;
    event("thread", {{"reason", "exited"}, {"threadId", threads_.number_of(id)}});
    threads_.forget(id);
  }
  return {{"threads", std::move(shown)}};
}

Json DapAdapter::stack_trace(const Json& arguments, CallControl& control) {
  const int64_t thread = threads_.thread_of(whole(arguments, "threadId"));
  const int64_t start = std::max<int64_t>(whole(arguments, "startFrame"), 0);
  const int64_t levels = std::max<int64_t>(whole(arguments, "levels"), 0);  // 0: all
  Json shown = Json::array();
  std::map<std::pair<std::string, bool>, Json> sources;  // of files, which are few
  const auto source_for = [&](const std::string& file, bool library) -> const Json& {
    Json& source = sources[{file, library}];
    if (source.is_null()) source = source_of(file, library ? "deemphasize" : "");
    return source;
  };
  int64_t total = start, from = start;
  do {
    const int64_t left = levels == 0 ? kMostFramesAtOnce : levels - (from - start);
    Json wanted{{"from", from}, {"limit", std::min(left, kMostFramesAtOnce)}};
    if (thread != 0) wanted["thread"] = thread;
    const Json part = call("debug stack", wanted, control);
    total = whole(part, "total");
    const Json& frames = part_of(part, "frames");
    if (!frames.is_array() || frames.empty()) break;
    for (const Json& frame : frames) {
      const Json& place = part_of(frame, "location");
      const int64_t index = whole(frame, "index");
      Json one{{"id", references_.add(FrameReference{thread, index})},
               {"name", text(place, "function", "?")},
               {"source", source_for(text(place, "file"), flag(frame, "library"))},
               {"line", std::max<int64_t>(whole(place, "line"), 1) - 1 + first_line_},
               {"column", first_column_}};
      if (const std::string module = text(place, "module"); !module.empty()) one["moduleId"] = module;
      if (flag(frame, "library")) one["presentationHint"] = "subtle";
      shown.push_back(std::move(one));
    }
    from += static_cast<int64_t>(frames.size());
  } while (from < total && (levels == 0 || from - start < levels));
  return {{"stackFrames", std::move(shown)}, {"totalFrames", total}};
}

Json DapAdapter::scopes(const Json& arguments, CallControl&) {
  const auto frame = references_.frame(whole(arguments, "frameId", -1));
  if (!frame) fail(Code::kNotFound, "scopes", "this frame is gone: its thread has gone on");
  const auto scope = [&](const char* name, const char* hint, OpenReference::Kind kind, bool expensive) {
    return Json{{"name", name},
                {"presentationHint", hint},
                {"variablesReference", references_.add(OpenReference{.kind = kind, .frame = *frame})},
                {"expensive", expensive}};
  };
  return {{"scopes", Json::array({scope("Locals", "locals", OpenReference::Kind::kLocals, false),
                                  scope("Globals", "globals", OpenReference::Kind::kGlobals, true)})}};
}

Json DapAdapter::exception_info(const Json& arguments, CallControl&) {
  Json stop;
  {
    const std::lock_guard lock(state_mutex_);
    const auto found = stops_.find(threads_.thread_of(whole(arguments, "threadId")));
    if (found != stops_.end()) stop = found->second;
  }
  const Json exception = field(stop, "exception");
  if (!exception.is_object()) fail(Code::kConflict, "exceptionInfo", "this thread does not stand at an exception");
  return {{"exceptionId", text(exception, "qualified", text(exception, "type"))},
          {"description", text(exception, "message")},
          {"breakMode", text(stop, "reason") == "exception" ? "unhandled" : "always"},
          {"details", exception_details(exception)}};
}

Json DapAdapter::completions(const Json& arguments, CallControl& control) {
  const FrameReference frame = frame_of(arguments);
  std::string typed = text(arguments, "text");
  for (int64_t line = whole(arguments, "line", first_line_); line > first_line_; --line) {
    const size_t end = typed.find('\n');
    if (end == std::string::npos) break;
    typed.erase(0, end + 1);
  }
  typed.resize(std::min(typed.find('\n'), typed.size()));
  Json wanted{{"text", typed}, {"column", std::max<int64_t>(whole(arguments, "column") - first_column_, 0)}};
  wanted["frame"] = frame.index;
  if (frame.thread != 0) wanted["thread"] = frame.thread;
  const Json found = call("debug complete", wanted, control);
  const int64_t start = whole(found, "start");
  Json targets = Json::array();
  for (const Json& one : dap::list(found, "completions"))
    targets.push_back({{"label", text(one, "name")},
                       {"type", text(one, "kind")},
                       {"start", start},
                       {"length", wanted["column"].get<int64_t>() - start}});
  return {{"targets", std::move(targets)}};
}

}  // namespace lockstep
