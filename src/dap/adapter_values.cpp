// variables, evaluate, setVariable, setExpression, lockstep/tensorPicture: values as an editor shows them.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "dap/adapter.h"
#include "dap/fields.h"

namespace lockstep {
namespace {

using dap::field;
using dap::flag;
using dap::text;
using dap::whole;

constexpr int64_t kMostPartsAtOnce = 500, kMostParts = 20000;
constexpr const char* kStatisticsName = "statistics";

std::string number_text(const Json& value) {
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// One line for a tensor: what it is, and what was computed of it.
std::string tensor_summary(const Json& tensor) {
  std::string sizes;
  for (const Json& size : dap::list(tensor, "shape")) sizes += (sizes.empty() ? "" : ", ") + size.dump();
  std::string line =
      fmt::format("{} {}[{}] {}", text(tensor, "framework"), text(tensor, "dtype"), sizes, text(tensor, "device"));
  if (const Json stats = field(tensor, "stats"); stats.is_object())
    for (const char* name : {"min", "max", "mean", "std", "nan", "inf"})
      if (stats.contains(name) &&
          !((std::string_view(name) == "nan" || std::string_view(name) == "inf") && stats[name] == Json(0)))
        line += fmt::format(" {} {}", name, number_text(stats[name]));
  if (const Json values = dap::list(tensor, "values"); !values.empty()) {
    line += " [";
    for (size_t i = 0; i < std::min<size_t>(values.size(), 10); ++i) line += (i ? ", " : "") + number_text(values[i]);
    line += values.size() > 10 ? ", ...]" : "]";
  }
  if (const std::string note = text(tensor, "note"); !note.empty()) line += " (" + note + ")";
  return line;
}

std::string value_text(const Json& value) {
  const Json tensor = field(value, "tensor");
  const std::string shown = text(value, "text");
  const bool number = tensor.is_object() && dap::list(tensor, "shape").empty() && field(tensor, "shape").is_array() &&
                      !shown.empty() && shown.find('[') == std::string::npos;
  if (tensor.is_object() && !number) return tensor_summary(tensor);
  return shown;
}

void add_place(Json& wanted, const FrameReference& frame) {
  wanted["frame"] = frame.index;
  if (frame.thread != 0) wanted["thread"] = frame.thread;
}

void add_counts(Json& shown, const Json& parts, bool tensor) {
  shown["namedVariables"] = whole(parts, "named") + (tensor ? 1 : 0);
  if (const int64_t indexed = whole(parts, "indexed"); indexed > 0) shown["indexedVariables"] = indexed;
}

}  // namespace

Json DapAdapter::part_from(const Json& told, int64_t holder, const FrameReference& frame) {
  const Json value = field(told, "value"), parts = field(told, "parts");
  const std::string name = text(told, "name"), expression = text(told, "expression");
  const bool tensor = field(value, "tensor").is_object();
  Json shown{{"name", name}, {"value", value_text(value)}, {"type", text(value, "type")}, {"evaluateName", expression}};
  references_.remember(holder, name, expression);
  shown["variablesReference"] = 0;
  if (parts.is_object()) {
    shown["variablesReference"] = references_.add(
        OpenReference{.kind = OpenReference::Kind::kParts, .frame = frame, .expression = expression, .tensor = tensor});
    add_counts(shown, parts, tensor);
  }
  return shown;
}

Json DapAdapter::statistics_of(const OpenReference& opened, CallControl& control) {
  Json wanted{{"expression", opened.expression}};
  add_place(wanted, opened.frame);
  const Json tensor = field(field(call("debug eval", wanted, control), "value"), "tensor");
  Json shown = Json::array();
  const auto add = [&](const std::string& name, const std::string& value) {
    shown.push_back({{"name", name}, {"value", value}, {"variablesReference", 0}});
  };
  if (const Json stats = field(tensor, "stats"); stats.is_object())
    for (const auto& [name, value] : stats.items()) add(name, number_text(value));
  for (const char* name : {"contiguous", "requires_grad"})
    if (tensor.contains(name)) add(name, tensor[name].dump());
  for (const char* name : {"values", "first", "last"}) {
    std::string all;
    for (const Json& value : dap::list(tensor, name)) all += (all.empty() ? "" : ", ") + number_text(value);
    if (!all.empty()) add(name, all);
  }
  if (const std::string note = text(tensor, "note"); !note.empty()) add("note", note);
  return {{"variables", std::move(shown)}};
}

Json DapAdapter::variables(const Json& arguments, CallControl& control) {
  const int64_t number = whole(arguments, "variablesReference", -1);
  const auto opened = references_.opened(number);
  if (!opened) fail(Code::kNotFound, "variables", "this is gone: its thread has gone on");
  if (opened->kind == OpenReference::Kind::kStatistics) return statistics_of(*opened, control);
  const std::string filter = text(arguments, "filter");
  int64_t from = std::max<int64_t>(whole(arguments, "start"), 0);
  int64_t left = whole(arguments, "count") > 0 ? std::min(whole(arguments, "count"), kMostParts) : kMostParts;
  Json wanted = Json::object();
  add_place(wanted, opened->frame);
  if (opened->kind == OpenReference::Kind::kParts)
    wanted["of"] = opened->expression;
  else
    wanted["scope"] = opened->kind == OpenReference::Kind::kGlobals ? "global" : "local";
  if (opened->kind == OpenReference::Kind::kParts && (filter == "named" || filter == "indexed"))
    wanted["parts"] = filter;
  Json shown = Json::array();
  if (filter == "indexed" && opened->kind != OpenReference::Kind::kParts) return {{"variables", shown}};
  if (opened->tensor && filter != "indexed") {  // the first of the named ones, computed once it is opened
    if (from == 0) {
      const int64_t statistics = references_.add(OpenReference{
          .kind = OpenReference::Kind::kStatistics, .frame = opened->frame, .expression = opened->expression});
      shown.push_back({{"name", kStatisticsName},
                       {"value", "min, max, mean, std, NaN: computed when opened"},
                       {"variablesReference", statistics},
                       {"presentationHint", {{"kind", "virtual"}, {"attributes", Json::array({"readOnly"})}}}});
      --left;
    } else {
      --from;
    }
  }
  for (int64_t total = 0; left > 0;) {
    wanted["from"] = from;
    wanted["limit"] = std::min(left, kMostPartsAtOnce);
    const Json part = call("debug vars", wanted, control);
    const Json found = dap::list(part, "variables");
    total = whole(part, "total");
    for (const Json& one : found) shown.push_back(part_from(one, number, opened->frame));
    from += static_cast<int64_t>(found.size());
    left -= static_cast<int64_t>(found.size());
    if (found.empty() || from >= total) break;
  }
  return {{"variables", std::move(shown)}};
}

Json DapAdapter::evaluate(const Json& arguments, CallControl& control) {
  const FrameReference frame = frame_of(arguments);
  const std::string expression = text(arguments, "expression"), context = text(arguments, "context");
  if (expression.find_first_not_of(" \t\r\n") == std::string::npos)
    fail(Code::kBadInput, "evaluate", "there is nothing to evaluate");
  Json wanted{{"expression", expression}, {"keep", true}};
  add_place(wanted, frame);
  const Json result = call("debug eval", wanted, control);
  const Json value = field(result, "value"), parts = field(result, "parts");
  const std::string printed = text(result, "printed");
  std::string shown = value.is_object() ? value_text(value) : "";
  if (context == "repl" && value.is_object() && text(value, "type") == "NoneType") shown.clear();  // as Python does
  Json body{{"result", printed + shown}, {"variablesReference", 0}};
  if (value.is_object()) body["type"] = text(value, "type");
  const std::string kept = text(result, "kept");
  if (parts.is_object() && !kept.empty()) {
    const bool tensor = field(value, "tensor").is_object();
    body["variablesReference"] = references_.add(
        OpenReference{.kind = OpenReference::Kind::kParts, .frame = frame, .expression = kept, .tensor = tensor});
    add_counts(body, parts, tensor);
  }
  // What an evaluation has changed is shown anew.
  if (const Json assigned = field(result, "assigned"); context == "repl" && assigned.is_array() && !assigned.empty())
    then([this] { event("invalidated", {{"areas", Json::array({"variables"})}}); });
  return body;
}

Json DapAdapter::set_expression(const Json& arguments, CallControl& control) {
  const FrameReference frame = frame_of(arguments);
  Json wanted{{"name", text(arguments, "expression")}, {"value", text(arguments, "value")}};
  add_place(wanted, frame);
  const Json value = field(call("debug set", wanted, control), "value");
  return {{"value", value_text(value)}, {"type", text(value, "type")}, {"variablesReference", 0}};
}

Json DapAdapter::set_variable(const Json& arguments, CallControl& control) {
  const std::string name = text(arguments, "name");
  const auto opened = references_.opened(whole(arguments, "variablesReference", -1));
  if (!opened) fail(Code::kNotFound, "setVariable", "this is gone: its thread has gone on");
  const auto known = opened->expressions.find(name);
  if (known == opened->expressions.end())
    fail(Code::kNotFound, "setVariable", "there is no variable '" + name.substr(0, 100) + "' here");
  std::string target = known->second;
  if (opened->kind == OpenReference::Kind::kGlobals) target = "globals()[" + Json(name).dump() + "]";
  Json wanted{{"name", target}, {"value", text(arguments, "value")}};
  add_place(wanted, opened->frame);
  const Json value = field(call("debug set", wanted, control), "value");
  return {{"value", value_text(value)}, {"type", text(value, "type")}, {"variablesReference", 0}};
}

Json DapAdapter::tensor_picture(const Json& arguments, CallControl& control) {
  Json wanted = Json::object();
  if (const Json number = field(arguments, "variablesReference"); number.is_number_integer()) {
    const auto opened = references_.opened(whole(arguments, "variablesReference"));
    if (!opened || opened->expression.empty()) fail(Code::kNotFound, "tensorPicture", "this is gone, or no value");
    wanted["expression"] = opened->expression;
    add_place(wanted, opened->frame);
  } else {
    wanted["expression"] = text(arguments, "expression");
    add_place(wanted, frame_of(arguments));
  }
  if (const std::string slice = text(arguments, "slice"); !slice.empty()) wanted["slice"] = slice;
  Json body = call("debug picture", wanted, control);
  body["mimeType"] = "image/png";
  return body;
}

}  // namespace lockstep
