#include "cli/debug_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/table.h"

namespace lockstep {
namespace {

std::string text(const Json& object, const char* name) {
  if (!object.is_object()) return {};
  const auto found = object.find(name);
  if (found == object.end() || found->is_null()) return {};
  return found->is_string() ? found->get<std::string>() : found->dump();
}

Json part(const Json& object, const char* name) {
  return object.is_object() ? object.value(name, Json(nullptr)) : Json(nullptr);
}

std::string place(const Json& location) {
  if (!location.is_object()) return "?";
  const std::string function = text(location, "function");
  return fmt::format("{}:{}{}", printable(text(location, "file")), text(location, "line"),
                     function.empty() ? "" : " in " + printable(function));
}

std::string numbers(const Json& values) {
  std::string out;
  for (const Json& value : values)
    out += (out.empty() ? "" : " ") + (value.is_number_float() ? fmt::format("{:.6g}", value.get<double>())
                                       : value.is_string()     ? value.get<std::string>()
                                                               : value.dump());
  return out;
}

std::string tensor_line(const Json& tensor) {
  return fmt::format("{} {} {} on {}", text(tensor, "framework"), text(tensor, "shape"), text(tensor, "dtype"),
                     text(tensor, "device"));
}

std::string tensor_text(const Json& tensor, const std::string& indent) {
  std::string out = tensor_line(tensor) + "\n";
  if (const Json stats = part(tensor, "stats"); stats.is_object()) {
    std::string line;
    for (const auto& [name, value] : stats.items())
      line += fmt::format("{}{} {}", line.empty() ? "" : "  ", name, numbers(Json::array({value})));
    out += indent + line + "\n";
  }
  for (const char* name : {"values", "first", "last"})
    if (const Json values = part(tensor, name); values.is_array())
      out += fmt::format("{}{:<6} {}\n", indent, name, numbers(values));
  if (const Json edges = part(tensor, "edges"); edges.is_object())
    for (const auto& [axis, edge] : edges.items())
      out +=
          fmt::format("{}{:<6} {} ... {}\n", indent, axis, numbers(part(edge, "first")), numbers(part(edge, "last")));
  if (const std::string note = text(tensor, "note"); !note.empty()) out += indent + note + "\n";
  return out;
}

std::string value_line(const Json& value) {
  if (!value.is_object()) return value.dump();
  if (const Json tensor = part(value, "tensor"); tensor.is_object()) return tensor_line(tensor);
  // A value of several lines (a model, an array) as one: line ends and the indentation after them become a blank.
  std::string line;
  bool indented = false;
  for (const char c : text(value, "text")) {
    if (indented && c == ' ') continue;
    indented = c == '\n';
    line += indented ? ' ' : c;
  }
  return printable(line);
}

std::string code_text(const Json& code, const Terminal& terminal) {
  std::string out;
  const Json lines = part(code, "lines");
  if (!lines.is_array()) return out;
  int64_t number = code.value("first", int64_t{1});
  const int64_t current = code.value("current", int64_t{-1});
  for (const Json& line : lines) {
    const std::string shown = fmt::format("{} {:>5}  {}", number == current ? "->" : "  ", number,
                                          line.is_string() ? printable(line.get<std::string>()) : line.dump());
    out += (number == current ? terminal.styled(shown, Style::kBold) : shown) + "\n";
    ++number;
  }
  return out;
}

std::string exception_text(const Json& exception) {
  std::string out;
  if (const Json lines = part(exception, "traceback"); lines.is_array())
    for (const Json& line : lines) {
      std::string shown = line.is_string() ? line.get<std::string>() : line.dump();
      while (!shown.empty() && shown.back() == '\n') shown.pop_back();
      out += "  " + shown + "\n";
    }
  return out;
}

std::string stop_text(const Json& stop, const Terminal& terminal) {
  std::string what = text(stop, "description");
  if (what.empty()) what = "stopped: " + text(stop, "reason");
  const std::string where = place(part(stop, "location"));
  if (what.find(where.substr(0, where.find(" in "))) == std::string::npos) what += " at " + where;
  std::string out = terminal.styled(printable(what), Style::kYellow) + "\n";
  out += code_text(part(stop, "code"), terminal);
  if (part(stop, "not_run_yet") == Json(true))
    out += terminal.styled("the marked line has not run yet", Style::kDim) + "\n";
  if (const Json exception = part(stop, "exception"); exception.is_object())
    out += fmt::format("{}: {}\n{}", text(exception, "type"), text(exception, "message"), exception_text(exception));
  if (const Json returned = part(stop, "return_value"); returned.is_object())
    out += "returned " + value_line(returned) + "\n";
  return out;
}

std::string status_text(const Json& status, const Terminal& terminal) {
  std::string out = fmt::format("{}  {}", terminal.styled(printable(text(status, "session")), Style::kBold),
                                terminal.styled(text(status, "state"), Style::kCyan));
  if (std::string program = text(status, "program"); !program.empty()) {
    if (const Json given = part(status, "arguments"); given.is_array())
      for (const Json& one : given) program += " " + (one.is_string() ? one.get<std::string>() : one.dump());
    out += fmt::format("  {} (process {}{})", shortened(printable(program), 120), text(status, "pid"),
                       text(status, "python").empty() ? "" : ", Python " + text(status, "python"));
  }
  out += "\n";
  if (const Json stop = part(status, "stop"); stop.is_object()) out += stop_text(stop, terminal);
  if (const Json end = part(status, "end"); end.is_object()) {
    out += text(end, "description") + "\n";
    out += exception_text(part(end, "exception"));
    if (const std::string is = text(end, "location_is"); !is.empty())
      out += fmt::format("{}: {}\n", is, place(part(end, "location")));
  }
  if (const std::string reason = text(status, "native_reason"); !reason.empty())
    out += terminal.styled("the slower agent is used: " + reason, Style::kDim) + "\n";
  if (const std::string hint = text(status, "hint"); !hint.empty()) out += terminal.styled(hint, Style::kDim) + "\n";
  return out;
}

std::string breakpoint_line(const Json& breakpoint) {
  std::string out = fmt::format("{:>3}  {}", text(breakpoint, "id"), printable(text(breakpoint, "where")));
  if (const std::string file = text(breakpoint, "file"); !file.empty())
    out += fmt::format("  {}:{}", printable(file), text(breakpoint, "line"));
  for (const char* name : {"module", "checkpoint"})
    if (const std::string value = text(breakpoint, name); !value.empty())
      out += fmt::format("  {} {}", name, printable(value));
  for (const char* name : {"condition", "when", "log", "capture"})
    if (const std::string value = text(breakpoint, name); !value.empty())
      out += fmt::format("  {} {}", name, printable(value));
  out += fmt::format("  {}  hit {} of {} times reached", text(breakpoint, "state"), text(breakpoint, "hit_count"),
                     text(breakpoint, "reached"));
  if (const std::string message = text(breakpoint, "message"); !message.empty()) out += "\n     " + printable(message);
  return out + "\n";
}

std::string rows(const Json& list, std::string (*row)(const Json&), const char* none) {
  std::string out;
  if (list.is_array())
    for (const Json& item : list) out += row(item);
  return out.empty() ? std::string(none) + "\n" : out;
}

std::string frame_line(const Json& frame) {
  return fmt::format("{:>3}  {}\n", text(frame, "index"), place(part(frame, "location")));
}

std::string variable_line(const Json& variable) {
  return fmt::format("{:<20} {}\n", printable(text(variable, "name")), value_line(part(variable, "value")));
}

std::string file_line(const Json& file) {
  const std::string calls = text(file, "calls");
  if (!file.contains("functions"))  // told at the end, by name alone
    return fmt::format("{:>5} {:8} {}\n", "-", "", printable(text(file, "file")));
  return fmt::format("{:>5} of {:<5} {}{}\n", text(file, "functions_run"), text(file, "functions"),
                     calls.empty() ? "" : fmt::format("{:>10}  ", calls), printable(text(file, "file")));
}

std::string thread_line(const Json& thread) {
  return fmt::format("{}  {}  {}  {}\n", text(thread, "id"), printable(text(thread, "name")), text(thread, "state"),
                     place(part(thread, "location")));
}

std::string checkpoint_line(const Json& checkpoint) {
  return fmt::format("{:>6} x {}  {}\n", text(checkpoint, "hits"), printable(text(checkpoint, "name")),
                     place(part(checkpoint, "location")));
}

std::string session_line(const Json& session) {
  return fmt::format("{:<20} {:<10} {}  {}\n", printable(text(session, "session")), text(session, "state"),
                     text(session, "id"), printable(text(session, "ended")));
}

std::string trace_line(const Json& line) {
  std::string rest;
  for (const auto& [name, value] : line.items())
    if (name != "line" && name != "time" && name != "kind" && name != "source" && name != "seq")
      rest += fmt::format(" {}={}", name, value.is_string() ? value.get<std::string>() : value.dump());
  if (rest.size() > 160) rest = rest.substr(0, 160) + "...";
  return fmt::format("{:>6}  {}  {}{}\n", text(line, "line"), text(line, "time"), text(line, "kind"), printable(rest));
}

std::string cause_line(const Json& cause) {
  std::string out = fmt::format("  {}: {}\n", text(cause, "cause"), printable(text(cause, "message")));
  for (const char* name : {"hint", "command"})
    if (const std::string value = text(cause, name); !value.empty()) out += "    try " + printable(value) + "\n";
  return out;
}

std::string more(const Json& result, const char* list) {
  const Json all = part(result, list), total = part(result, "total");
  if (!all.is_array() || !total.is_number_integer() || total.get<int64_t>() <= static_cast<int64_t>(all.size()))
    return {};
  return fmt::format("... {} more: --limit\n", total.get<int64_t>() - static_cast<int64_t>(all.size()));
}

std::string files_text(const Json& result) {
  const bool counted = part(result, "calls_counted") == Json(true);
  const std::string head = counted ? "functions run       calls  file\n" : "functions run  file\n";
  std::string out = head + rows(part(result, "files"), file_line, "no files") + more(result, "files");
  if (const std::string hint = text(result, "hint"); !hint.empty()) out += hint + "\n";
  return out;
}

std::string evaluated(const Json& result) {
  std::string out = text(result, "printed");
  const Json value = part(result, "value");
  if (value.is_null()) return out;
  if (const Json tensor = part(value, "tensor"); tensor.is_object()) return out + tensor_text(tensor, "  ");
  out += printable(text(value, "text")) + "\n";
  return out;
}

std::string log_text(const Json& result) {
  std::string out;
  for (const Json& line : part(result, "lines"))
    out += (line.is_string() ? line.get<std::string>() : line.dump()) + "\n";
  if (const std::string unfinished = text(result, "unfinished"); !unfinished.empty()) out += unfinished + "\n";
  return out;
}

}  // namespace

std::string debug_text(const std::string& operation, const Json& result, const Terminal& terminal) {
  const std::string verb = operation.substr(operation.find(' ') + 1);
  if (verb == "break") return breakpoint_line(part(result, "breakpoint"));
  if (verb == "breaks") return rows(part(result, "breakpoints"), breakpoint_line, "no breakpoints");
  if (verb == "remove" || verb == "clear")
    return fmt::format("removed {}\n", part(result, "removed").is_array() ? part(result, "removed").size() : 0);
  if (verb == "why") return text(result, "answer") + "\n" + rows(part(result, "causes"), cause_line, "");
  if (verb == "eval" || verb == "set") return evaluated(result);
  if (verb == "vars") return rows(part(result, "variables"), variable_line, "no variables") + more(result, "variables");
  if (verb == "stack") return rows(part(result, "frames"), frame_line, "no frames") + more(result, "frames");
  if (verb == "location")
    return place(part(result, "location")) + "\n" + code_text(part(result, "code"), terminal) + text(result, "note") +
           "\n";
  if (verb == "source") return text(result, "file") + "\n" + code_text(result, terminal);
  if (verb == "threads") return rows(part(result, "threads"), thread_line, "no threads");
  if (verb == "files") return files_text(result);
  if (verb == "count")
    return part(result, "calls_counted") == Json(true) ? "calls are counted\n" : "counted no longer\n";
  if (verb == "checkpoints") return rows(part(result, "checkpoints"), checkpoint_line, "no checkpoints");
  if (verb == "sessions") return rows(part(result, "sessions"), session_line, "no sessions") + more(result, "sessions");
  if (verb == "log") return log_text(result);
  if (verb == "trace show") return rows(part(result, "lines"), trace_line, "nothing");
  if (verb == "trace export") return text(result, "path") + "\n";
  return status_text(result, terminal);
}

}  // namespace lockstep
