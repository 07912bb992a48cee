#include "debugger/trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <map>

#include "base/error.h"
#include "base/message.h"
#include "capture/store.h"
#include "debugger/bounded_line.h"
#include "debugger/session_fields.h"

namespace lockstep {
namespace {

constexpr size_t kMostLineBytes = 2 << 20;

template <typename Use>
int64_t each_line(const fs::path& file, int64_t& skipped, Use use) {
  int64_t number = 0;
  BoundedLine line(kMostLineBytes, 0);
  const auto read = [&] {
    ++number;
    Json parsed = line.whole() ? json_message(line.text()).value_or(Json()) : Json();
    if (parsed.is_object())
      use(number, std::move(parsed));
    else
      ++skipped;
  };
  if (!read_lines(file, line, read)) fail(Code::kNotFound, "trace", "there is no trace in " + file.string());
  if (!line.empty()) read();  // torn, unless only its end is missing
  return number;
}

// A stop or an evaluation, in the seeds' words.
Json step_from(const Json& event, int64_t number) {
  Json step{{"step", number}, {"time", field(event, "time")}};
  for (const char* name : {"step_type", "reason", "location", "code_context", "call_stack", "variables", "expression",
                           "result", "error", "exception", "checkpoint", "data"})
    if (const Json value = field(event, name); !value.is_null()) step[name] = value;
  return step;
}

}  // namespace

TraceWriter::TraceWriter(const fs::path& file) {
  fd_ = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd_ < 0) fail(Code::kIo, "trace", file.string() + ": " + std::strerror(errno));
}

TraceWriter::~TraceWriter() {
  if (fd_ >= 0) ::close(fd_);
}

void TraceWriter::add(const std::string& kind, const Json& fields) {
  Json line{{"time", utc_now()}, {"kind", kind}, {"source", "service"}};
  line.update(fields);
  const std::string whole = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  ssize_t written;
  do written = ::write(fd_, whole.data(), whole.size());
  while (written < 0 && errno == EINTR);  // a full disk loses the line, never half of one
}

TracePart read_trace(const fs::path& file, int64_t after, int64_t most, const std::string& kind) {
  TracePart part;
  std::deque<Json> kept;
  const size_t limit = static_cast<size_t>(most < 0 ? -most : most);
  part.total = each_line(file, part.skipped, [&](int64_t number, Json line) {
    if (number <= after || limit == 0 || (!kind.empty() && text(line, "kind") != kind)) return;
    if (kept.size() == limit) {
      if (most > 0) return;
      kept.pop_front();
    }
    Json numbered{{"line", number}};
    numbered.update(line);
    kept.push_back(std::move(numbered));
  });
  part.lines.assign(std::make_move_iterator(kept.begin()), std::make_move_iterator(kept.end()));
  return part;
}

namespace {

// The arguments of `break` that made this breakpoint.
Json request_of(const Json& breakpoint) {
  Json request = Json::object();
  for (const char* name : {"module", "checkpoint", "when", "context", "condition", "log", "capture", "nan"})
    if (const Json value = field(breakpoint, name); !value.is_null()) request[name] = value;
  if (const Json hits = field(breakpoint, "hits_wanted"); hits.is_number_integer()) request["hits"] = hits;
  if (field(breakpoint, "once") == Json(true)) request["once"] = true;
  if (!request.contains("module") && !request.contains("checkpoint")) request["where"] = field(breakpoint, "where");
  return request;
}

}  // namespace

TraceState trace_state(const fs::path& file) {
  TraceState state;
  int64_t skipped = 0;
  each_line(file, skipped, [&](int64_t, Json line) {
    const std::string kind = text(line, "kind");
    if (kind == "output" && text(line, "source") == "service") ++state.output_lines;
    if (kind == "exit") state.exited = line;
    if (kind == "stop") {
      state.last_stop = {{"location", field(line, "location")}};
      ++state.stops;
    }
    const Json breakpoint = kind == "breakpoint" ? field(line, "breakpoint") : Json(nullptr);
    if (!breakpoint.is_object() || !field(breakpoint, "id").is_number_integer()) return;
    const std::string change = text(line, "change");
    if (change == "removed" || change == "done")
      state.breakpoints.erase(breakpoint["id"].get<int64_t>());
    else if (change == "set")
      state.breakpoints[breakpoint["id"].get<int64_t>()] = request_of(breakpoint);
  });
  return state;
}

Json trace_document(const fs::path& file) {
  Json document{{"session_id", nullptr}, {"script_path", nullptr}, {"start_time", nullptr}, {"end_time", nullptr}};
  Json steps = Json::array(), output = Json::array(), end = nullptr;
  std::map<int64_t, Json> breakpoints;
  int64_t skipped = 0;
  each_line(file, skipped, [&](int64_t, Json line) {
    const std::string kind = text(line, "kind");
    document["end_time"] = field(line, "time");
    if (kind == "start") {
      for (const char* name : {"session_id", "script_path"}) document[name] = field(line, name);
      document["start_time"] = field(line, "time");
    } else if (kind == "breakpoint") {
      const Json breakpoint = field(line, "breakpoint");
      if (breakpoint.is_object() && field(breakpoint, "id").is_number_integer())
        breakpoints[breakpoint["id"].get<int64_t>()] = breakpoint;
    } else if (kind == "output") {
      output.push_back(field(line, "text"));
    } else if (kind == "stop" || kind == "evaluation") {
      steps.push_back(step_from(line, static_cast<int64_t>(steps.size()) + 1));
    } else if (kind == "end" || (kind == "exit" && end.is_null())) {
      end = kind == "end" ? field(line, "end") : line;
    }
  });
  document["breakpoints"] = Json::array();
  for (auto& [id, breakpoint] : breakpoints) document["breakpoints"].push_back(std::move(breakpoint));
  document["total_steps"] = steps.size();
  document["steps"] = std::move(steps);
  document["output"] = std::move(output);
  document["end"] = std::move(end);
  document["skipped_lines"] = skipped;
  return document;
}

}  // namespace lockstep
