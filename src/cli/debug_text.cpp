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

Text place(const Json& location) {
  if (!location.is_object()) return "?";
  const std::string function = text(location, "function");
  return Text::of("{}:{}{}", text(location, "file"), text(location, "line"), function.empty() ? "" : " in " + function);
}

Text numbers(const Json& values) {
  Text out;
  for (const Json& value : values)
    out += Text::of("{}{}", out.empty() ? "" : " ",
                    value.is_number_float() ? fmt::format("{:.6g}", value.get<double>())
                    : value.is_string()     ? value.get<std::string>()
                                            : value.dump());
  return out;
}

Text tensor_line(const Json& tensor) {
  return Text::of("{} {} {} on {}", text(tensor, "framework"), text(tensor, "shape"), text(tensor, "dtype"),
                  text(tensor, "device"));
}

Text tensor_text(const Json& tensor, const std::string& indent) {
  Text out = tensor_line(tensor) + "\n";
  if (const Json stats = part(tensor, "stats"); stats.is_object()) {
    Text line;
    for (const auto& [name, value] : stats.items())
      line += Text::of("{}{} {}", line.empty() ? "" : "  ", name, numbers(Json::array({value})));
    out += Text::of("{}{}\n", indent, line);
  }
  for (const char* name : {"values", "first", "last"})
    if (const Json values = part(tensor, name); values.is_array())
      out += Text::of("{}{:<6} {}\n", indent, name, numbers(values));
  if (const Json edges = part(tensor, "edges"); edges.is_object())
    for (const auto& [axis, edge] : edges.items())
      out += Text::of("{}{:<6} {} ... {}\n", indent, axis, numbers(part(edge, "first")), numbers(part(edge, "last")));
  if (const std::string note = text(tensor, "note"); !note.empty()) out += Text::of("{}{}\n", indent, note);
  return out;
}

Text value_line(const Json& value) {
  if (!value.is_object()) return Text::from(value.dump());
  if (const Json tensor = part(value, "tensor"); tensor.is_object()) return tensor_line(tensor);
  // A value of several lines (a model, an array) as one: line ends and the indentation after them become a blank.
  std::string line;
  bool indented = false;
  for (const char c : text(value, "text")) {
    if (indented && c == ' ') continue;
    indented = c == '\n';
    line += indented ? ' ' : c;
  }
  return Text(line);
}

Text code_text(const Json& code, const Terminal& terminal) {
  Text out;
  const Json lines = part(code, "lines");
  if (!lines.is_array()) return out;
  int64_t number = code.value("first", int64_t{1});
  const int64_t current = code.value("current", int64_t{-1});
  for (const Json& line : lines) {
    const Text shown = Text::of("{} {:>5}  {}", number == current ? "->" : "  ", number,
                                Text::from_lines(line.is_string() ? line.get<std::string>() : line.dump()));
    out += (number == current ? terminal.styled(shown, Style::kBold) : shown) + "\n";
    ++number;
  }
  return out;
}

Text exception_text(const Json& exception) {
  Text out;
  if (const Json lines = part(exception, "traceback"); lines.is_array())
    for (const Json& line : lines) {
      std::string shown = line.is_string() ? line.get<std::string>() : line.dump();
      while (!shown.empty() && shown.back() == '\n') shown.pop_back();
      out += Text::of("  {}\n", Text::from_lines(shown, "  "));
    }
  return out;
}

Text stop_text(const Json& stop, const Terminal& terminal) {
  std::string what = text(stop, "description");
  if (what.empty()) what = "stopped: " + text(stop, "reason");
  const std::string where = place(part(stop, "location")).string();  // escaped: it only is looked for
  if (what.find(where.substr(0, where.find(" in "))) == std::string::npos) what += " at " + where;
  Text out = terminal.styled(what, Style::kYellow) + "\n";
  out += code_text(part(stop, "code"), terminal);
  if (part(stop, "not_run_yet") == Json(true))
    out += terminal.styled("the marked line has not run yet", Style::kDim) + "\n";
  if (const Json exception = part(stop, "exception"); exception.is_object())
    out += Text::of("{}: {}\n{}", text(exception, "type"), text(exception, "message"), exception_text(exception));
  if (const Json returned = part(stop, "return_value"); returned.is_object())
    out += "returned " + value_line(returned) + "\n";
  return out;
}

Text status_text(const Json& status, const Terminal& terminal) {
  Text out = Text::of("{}  {}", terminal.styled(text(status, "session"), Style::kBold),
                      terminal.styled(text(status, "state"), Style::kCyan));
  if (std::string program = text(status, "program"); !program.empty()) {
    if (const Json given = part(status, "arguments"); given.is_array())
      for (const Json& one : given) program += " " + (one.is_string() ? one.get<std::string>() : one.dump());
    out += Text::of("  {} (process {}{})", shortened(Text::from(program), 120), text(status, "pid"),
                    text(status, "python").empty() ? "" : ", Python " + text(status, "python"));
  }
  out += "\n";
  if (const Json stop = part(status, "stop"); stop.is_object()) out += stop_text(stop, terminal);
  if (const Json end = part(status, "end"); end.is_object()) {
    out += Text::of("{}\n", text(end, "description"));
    out += exception_text(part(end, "exception"));
    if (const std::string is = text(end, "location_is"); !is.empty())
      out += Text::of("{}: {}\n", is, place(part(end, "location")));
  }
  if (const std::string reason = text(status, "native_reason"); !reason.empty())
    out += terminal.styled("the slower agent is used: " + reason, Style::kDim) + "\n";
  if (const std::string hint = text(status, "hint"); !hint.empty()) out += terminal.styled(hint, Style::kDim) + "\n";
  return out;
}

Text breakpoint_line(const Json& breakpoint) {
  Text out = Text::of("{:>3}  {}", text(breakpoint, "id"), text(breakpoint, "where"));
  if (const std::string file = text(breakpoint, "file"); !file.empty())
    out += Text::of("  {}:{}", file, text(breakpoint, "line"));
  for (const char* name : {"module", "checkpoint"})
    if (const std::string value = text(breakpoint, name); !value.empty()) out += Text::of("  {} {}", name, value);
  for (const char* name : {"condition", "when", "log", "capture"})
    if (const std::string value = text(breakpoint, name); !value.empty()) out += Text::of("  {} {}", name, value);
  out += Text::of("  {}  hit {} of {} times reached", text(breakpoint, "state"), text(breakpoint, "hit_count"),
                  text(breakpoint, "reached"));
  if (const std::string message = text(breakpoint, "message"); !message.empty()) out += Text::of("\n     {}", message);
  return out + "\n";
}

Text rows(const Json& list, Text (*row)(const Json&), const char* none) {
  Text out;
  if (list.is_array())
    for (const Json& item : list) out += row(item);
  return out.empty() ? Text::of("{}\n", none) : out;
}

Text frame_line(const Json& frame) {
  return Text::of("{:>3}  {}\n", text(frame, "index"), place(part(frame, "location")));
}

Text variable_line(const Json& variable) {
  return Text::of("{:<20} {}\n", text(variable, "name"), value_line(part(variable, "value")));
}

Text file_line(const Json& file) {
  const std::string calls = text(file, "calls");
  if (!file.contains("functions"))  // told at the end, by name alone
    return Text::of("{:>5} {:8} {}\n", "-", "", text(file, "file"));
  return Text::of("{:>5} of {:<5} {}{}\n", text(file, "functions_run"), text(file, "functions"),
                  calls.empty() ? "" : Text::of("{:>10}  ", calls), text(file, "file"));
}

Text thread_line(const Json& thread) {
  return Text::of("{}  {}  {}  {}\n", text(thread, "id"), text(thread, "name"), text(thread, "state"),
                  place(part(thread, "location")));
}

Text checkpoint_line(const Json& checkpoint) {
  return Text::of("{:>6} x {}  {}\n", text(checkpoint, "hits"), text(checkpoint, "name"),
                  place(part(checkpoint, "location")));
}

Text session_line(const Json& session) {
  return Text::of("{:<20} {:<10} {}  {}\n", text(session, "session"), text(session, "state"), text(session, "id"),
                  text(session, "ended"));
}

Text trace_line(const Json& line) {
  std::string rest;
  for (const auto& [name, value] : line.items())
    if (name != "line" && name != "time" && name != "kind" && name != "source" && name != "seq")
      rest += fmt::format(" {}={}", name, value.is_string() ? value.get<std::string>() : value.dump());
  if (rest.size() > 160) rest = rest.substr(0, 160) + "...";
  return Text::of("{:>6}  {}  {}{}\n", text(line, "line"), text(line, "time"), text(line, "kind"), rest);
}

Text cause_line(const Json& cause) {
  Text out = Text::of("  {}: {}\n", text(cause, "cause"), text(cause, "message"));
  for (const char* name : {"hint", "command"})
    if (const std::string value = text(cause, name); !value.empty()) out += Text::of("    try {}\n", value);
  return out;
}

Text more(const Json& result, const char* list) {
  const Json all = part(result, list), total = part(result, "total");
  if (!all.is_array() || !total.is_number_integer() || total.get<int64_t>() <= static_cast<int64_t>(all.size()))
    return {};
  return Text::of("... {} more: --limit\n", total.get<int64_t>() - static_cast<int64_t>(all.size()));
}

Text files_text(const Json& result) {
  const bool counted = part(result, "calls_counted") == Json(true);
  const Text head = counted ? Text("functions run       calls  file\n") : Text("functions run  file\n");
  Text out = head + rows(part(result, "files"), file_line, "no files") + more(result, "files");
  if (const std::string hint = text(result, "hint"); !hint.empty()) out += Text::of("{}\n", hint);
  return out;
}

// The tensors of a tuple, list or dictionary, each under its index or name.
Text tensors_inside(const Json& value, const std::string& indent) {
  Text out;
  if (const Json items = part(value, "items"); items.is_array())
    for (const Json& item : items) {
      if (!item.is_array() || item.size() != 2 || !item[1].is_object()) continue;
      const std::string name = item[0].is_string() ? item[0].get<std::string>() : item[0].dump();
      if (const Json tensor = part(item[1], "tensor"); tensor.is_object())
        out += Text::of("{}{}: {}", indent, name, tensor_text(tensor, indent + "  "));
      else if (const Text inside = tensors_inside(item[1], indent + "  "); !inside.empty())
        out += Text::of("{}{}:\n{}", indent, name, inside);
    }
  return out;
}

Text evaluated(const Json& result) {
  Text out = Text::from_lines(text(result, "printed"), "");
  const Json value = part(result, "value");
  if (value.is_null()) return out;
  if (const Json tensor = part(value, "tensor"); tensor.is_object()) return out + tensor_text(tensor, "  ");
  out += Text::of("{}\n", Text::from_lines(text(value, "text"), ""));
  return out + tensors_inside(value, "  ");
}

Text twin_value(const Json& answer) {
  if (const Json error = part(answer, "error"); error.is_object()) return Text::from(text(error, "message"));
  return part(answer, "value").is_null() ? Text("") : evaluated(answer);
}

Text difference_text(const Json& difference) {
  if (!difference.is_object()) return {};
  if (const Json error = part(difference, "error"); error.is_object()) return Text::from(text(error, "message"));
  if (text(difference, "kind") == "shape")
    return Text::of("shapes differ: {} and {}", text(difference, "shape"), text(difference, "candidate_shape"));
  if (text(difference, "unequal") == "0") return Text("equal");
  return Text::of(
      "relative {}, largest {}, {} of {} values differ", numbers(Json::array({part(difference, "relative")})),
      numbers(Json::array({part(difference, "max_abs")})), text(difference, "unequal"), text(difference, "of"));
}

Text twin_variable(const Json& row) {
  const auto side = [&](const char* name) {
    const Json value = part(row, name);
    return value.is_null() ? Text("-") : value_line(value);
  };
  Text out = Text::of("{:<20} reference  {}\n{:<20} candidate  {}\n", text(row, "name"), side("reference"), "",
                      side("candidate"));
  if (const Text apart = difference_text(part(row, "difference")); !apart.empty())
    out += Text::of("{:<20} difference {}\n", "", apart);
  return out;
}

Text twin_status(const Json& result, const Terminal& terminal) {
  Text out;
  for (const char* side : {"reference", "candidate"})
    out += terminal.styled(side, Style::kBold) + "\n" + status_text(part(result, side), terminal);
  if (const Json told = part(result, "comparison"); told.is_object() && !told.contains("error"))
    out += Text::of("{} compared, {} on one side only, largest relative error {}\n", text(told, "compared"),
                    text(told, "passed"), numbers(Json::array({part(told, "worst")})));
  if (const std::string hint = text(result, "hint"); !hint.empty()) out += terminal.styled(hint, Style::kDim) + "\n";
  return out;
}

Text twin_text(const std::string& verb, const Json& result, const Terminal& terminal) {
  if (verb == "vars") return rows(part(result, "variables"), twin_variable, "no variables");
  if (verb != "eval") return twin_status(result, terminal);
  Text out;
  for (const char* side : {"reference", "candidate"}) out += Text::of("{}\n", side) + twin_value(part(result, side));
  if (const Text apart = difference_text(part(result, "difference")); !apart.empty())
    out += Text::of("difference: {}\n", apart);
  return out;
}

Text completion_line(const Json& one) {
  return Text::of("{:<30} {}\n", text(one, "name"), text(one, "kind"));
}

Text picture_text(const Json& result) {
  return Text::of("{}{} x {}, {} to {}, {} not finite\n",
                  text(result, "path").empty() ? "" : text(result, "path") + ": ", text(result, "width"),
                  text(result, "height"), numbers(Json::array({part(result, "min")})),
                  numbers(Json::array({part(result, "max")})), text(result, "not_finite"));
}

Text loaded_line(const Json& file) {
  return Text::of("{:<40} {}\n", text(file, "module"), text(file, "file"));
}

Text log_text(const Json& result) {
  Text out;
  for (const Json& line : part(result, "lines"))
    out += Text::of("{}\n", Text::from_lines(line.is_string() ? line.get<std::string>() : line.dump()));
  if (const std::string unfinished = text(result, "unfinished"); !unfinished.empty())
    out += Text::of("{}\n", Text::from_lines(unfinished));
  return out;
}

}  // namespace

Text debug_text(const std::string& operation, const Json& result, const Terminal& terminal) {
  const std::string verb = operation.substr(operation.find(' ') + 1);
  if (verb == "break") return breakpoint_line(part(result, "breakpoint"));
  if (verb == "breaks") return rows(part(result, "breakpoints"), breakpoint_line, "no breakpoints");
  if (verb == "zoom")
    return rows(part(result, "breakpoints"), breakpoint_line, "no divergence inside the call: no breakpoint is set") +
           rows(part(result, "reference_breakpoints"), breakpoint_line, "") + Text::of("{}\n", text(result, "note"));
  if (verb == "remove" || verb == "clear")
    return Text::of("removed {}\n", part(result, "removed").is_array() ? part(result, "removed").size() : 0);
  if (verb == "why")
    return Text::of("{}\n", Text::from_lines(text(result, "answer"))) + rows(part(result, "causes"), cause_line, "");
  if (verb == "eval" || verb == "set") return evaluated(result);
  if (verb == "vars") return rows(part(result, "variables"), variable_line, "no variables") + more(result, "variables");
  if (verb == "stack") return rows(part(result, "frames"), frame_line, "no frames") + more(result, "frames");
  if (verb == "location")
    return place(part(result, "location")) + "\n" + code_text(part(result, "code"), terminal) +
           Text::of("{}\n", text(result, "note"));
  if (verb == "source") return Text::of("{}\n", text(result, "file")) + code_text(result, terminal);
  if (verb == "threads") return rows(part(result, "threads"), thread_line, "no threads");
  if (verb == "files") return files_text(result);
  if (verb == "count")
    return part(result, "calls_counted") == Json(true) ? Text("calls are counted\n") : Text("counted no longer\n");
  if (verb == "checkpoints") return rows(part(result, "checkpoints"), checkpoint_line, "no checkpoints");
  if (verb == "complete") return rows(part(result, "completions"), completion_line, "nothing fits");
  if (verb == "loaded") return rows(part(result, "files"), loaded_line, "no files");
  if (verb == "exceptions") return Text::of("stops: {}\n", text(result, "stop"));
  if (verb == "picture") return picture_text(result);
  if (verb.starts_with("twin ")) return twin_text(verb.substr(5), result, terminal);
  if (verb == "sessions") return rows(part(result, "sessions"), session_line, "no sessions") + more(result, "sessions");
  if (verb == "log") return log_text(result);
  if (verb == "trace show") return rows(part(result, "lines"), trace_line, "nothing");
  if (verb == "trace export") return Text::of("{}\n", text(result, "path"));
  return status_text(result, terminal);
}

}  // namespace lockstep
