#include "debugger/session_end.h"

#include <fmt/format.h>

#include <csignal>
#include <optional>

#include "base/error.h"
#include "base/number_text.h"
#include "base/strict_stream.h"
#include "debugger/session_fields.h"

namespace lockstep {
namespace {

std::string place(const Json& location) {
  if (!location.is_object()) return {};
  const Json line = field(location, "line");
  return fmt::format(" at {}:{}", text(location, "file"), line.is_number_integer() ? line.get<int64_t>() : 0);
}

// One frame as faulthandler prints it: `  File "FILE", line LINE in FUNCTION`.
std::optional<Json> crash_frame(std::string_view line) {
  constexpr std::string_view kFile = "File \"", kLine = "\", line ", kIn = " in ";
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == line.npos || !line.substr(begin).starts_with(kFile)) return std::nullopt;
  line.remove_prefix(begin + kFile.size());
  const size_t file_end = line.find(kLine);
  if (file_end == line.npos || file_end == 0 || file_end > 1000) return std::nullopt;
  const std::string_view file = line.substr(0, file_end);
  line.remove_prefix(file_end + kLine.size());
  const size_t digits = line.find_first_not_of("0123456789");
  if (digits == 0 || digits == line.npos || digits > 9 || !line.substr(digits).starts_with(kIn)) return std::nullopt;
  const int64_t number = std::stoll(std::string(line.substr(0, digits)));
  return Json{{"file", file}, {"line", number}, {"function", line.substr(digits + kIn.size(), 200)}};
}

// The stack of the thread that crashed, as Python's fault handler wrote it.
Json crashed_stack(const fs::path& file, Json& crash) {
  Json stack = Json::array();
  std::ifstream in = strict_file(file);
  bool current = false;
  std::string line;
  for (int read = 0; read < 200 && std::getline(in, line); ++read) {
    if (line.size() > 1500) line.resize(1500);
    if (crash.size() < 40) crash.push_back(line);
    if (line.starts_with("Current thread") || line.starts_with("Stack (most recent")) {
      current = true;
    } else if (line.starts_with("Thread ")) {
      current = false;
    }
    if (!current || stack.size() >= 20) continue;
    const std::optional<Json> frame = crash_frame(line);
    if (frame && frame->at("file").get<std::string>().find("/lockstep/agent/") == std::string::npos)
      stack.push_back(*frame);
  }
  return stack;
}

bool is_memory_error(const Json& exception) {
  if (text(exception, "type") == "MemoryError" || text(exception, "type") == "OutOfMemoryError") return true;
  const std::string message = text(exception, "message");
  return message.find("can't allocate memory") != std::string::npos ||
         message.find("out of memory") != std::string::npos || message.find("Unable to allocate") != std::string::npos;
}

// The best place we know: where it crashed, where it said it was, or where it was seen last.
void add_location(Json& end, const EndEvidence& evidence) {
  Json crash = Json::array();
  const Json stack = crashed_stack(evidence.folder / "crash.txt", crash);
  if (!crash.empty()) end["crash"] = crash;
  if (!stack.empty()) {
    end["location"] = stack[0];
    end["location_is"] = "where it crashed";
    end["stack"] = stack;
    return;
  }
  if (const Json said = field(evidence.exited, "location"); said.is_object()) {
    end["location"] = said;
    end["location_is"] = "the last line that ran";
    return;
  }
  Json last;
  try {
    last = read_json(evidence.folder / "last.json", 1 << 20);
  } catch (const Error&) {  // it ended before it could leave one
  }
  if (const Json known = field(last, "location"); known.is_object()) {
    end["location"] = known;
    end["location_is"] = "the last known place, at most a second before the end";
    if (const Json frames = field(last, "stack"); frames.is_array()) end["stack"] = frames;
  } else if (const Json stop = field(evidence.last_stop, "location"); stop.is_object()) {
    end["location"] = stop;
    end["location_is"] = "where it last stopped";
  }
}

std::string how_it_ended(const EndEvidence& evidence, const Json& exception) {
  const int signal = evidence.end.signal();
  const std::string said = text(evidence.exited, "how");
  if (evidence.terminated && (signal == SIGKILL || signal == SIGTERM || said == "terminated")) return "terminated";
  if (signal == SIGKILL)
    return evidence.memory_kills_before >= 0 && evidence.memory_kills_after > evidence.memory_kills_before
               ? "out_of_memory"
               : "killed";
  if (signal != 0) return "signal";
  if (said == "exception") return is_memory_error(exception) ? "out_of_memory" : "exception";
  if (said.empty() && !evidence.end.seen) return evidence.terminated ? "terminated" : "unseen";
  if (said.empty()) return "exit";
  return said;
}

int exit_code_of(const EndEvidence& evidence) {
  if (evidence.end.seen) return evidence.end.exit_code();
  const Json code = field(evidence.exited, "code");
  return code.is_number_integer() ? code.get<int>() : -1;
}

std::string sentence(const std::string& how, const EndEvidence& evidence, const Json& exception, const Json& location) {
  const int code = exit_code_of(evidence);
  const std::string raised = text(exception, "type") + (text(exception, "message").empty() ? "" : ": ") +
                             text(exception, "message").substr(0, 300);
  if (how == "finished") return fmt::format("the program finished, exit code {}", code);
  if (how == "sys_exit") return fmt::format("the program called sys.exit, exit code {}{}", code, place(location));
  if (how == "exception") return fmt::format("uncaught {}{}", raised, place(location));
  if (how == "terminated") return "the program was terminated, as asked for";
  if (how == "killed")
    return fmt::format("the program was killed by SIGKILL, from outside{}; its peak memory was {}", place(location),
                       text_from_bytes(evidence.end.peak_bytes));
  if (how == "out_of_memory")
    return evidence.end.signal() ? fmt::format("the system killed the program for want of memory{}; its peak was {}",
                                               place(location), text_from_bytes(evidence.end.peak_bytes))
                                 : fmt::format("out of memory: {}{}", raised, place(location));
  if (how == "unseen") return fmt::format("the program ended while no service watched it{}", place(location));
  if (how == "signal") return fmt::format("the program crashed with {}{}", evidence.end.signal_name(), place(location));
  if (!evidence.connected) return fmt::format("Python could not start the program, exit code {}", code);
  return fmt::format("the process left through os._exit or a library's exit, exit code {}{}", code, place(location));
}

}  // namespace

Json describe_end(const EndEvidence& evidence) {
  const Json exception = field(evidence.exited, "exception");
  Json end{{"how", how_it_ended(evidence, exception)}};
  if (const int code = exit_code_of(evidence); code >= 0) end["exit_code"] = code;
  const std::string how = text(end, "how");
  if (evidence.end.by_signal()) end["signal"] = evidence.end.signal_name();
  if (exception.is_object()) {
    end["exception"] = exception;
    if (const Json where = field(exception, "location"); where.is_object()) {
      end["location"] = where;
      end["location_is"] = "where it was raised";
    }
  }
  if (!end.contains("location") && how != "finished" && how != "terminated") add_location(end, evidence);
  if (evidence.end.seen && evidence.end.peak_bytes > 0) end["peak_memory_bytes"] = evidence.end.peak_bytes;
  end["description"] = sentence(how, evidence, exception, field(end, "location"));
  return end;
}

}  // namespace lockstep
