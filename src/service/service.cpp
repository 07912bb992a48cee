#include "service/service.h"

#include <unistd.h>

#include <algorithm>

#include "base/base64.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/names.h"
#include "service/groups.h"

namespace lockstep {
namespace {

std::vector<Operation> assemble() {
  std::vector<Operation> table;
  for (auto* group : {&program_operations, &breakpoint_operations, &running_operations, &looking_operations,
                      &editor_operations, &twin_operations, &recorded_operations, &compare_operations, &zoom_operations,
                      &toolbox_operations, &tensor_view_operations, &compare_view_operations, &source_line_operations,
                      &map_file_operations, &machine_operations, &picture_operations})
    for (Operation& operation : group()) table.push_back(std::move(operation));
  return table;
}

const std::vector<Operation>& table() {
  static const std::vector<Operation> rows = assemble();
  return rows;
}

std::string with_blanks(std::string_view name) {
  std::string out(name);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c == '_' || c == '/'; }, ' ');
  return out;
}

std::string absolute(const std::string& path) {
  return (fs::current_path() / path).lexically_normal().string();
}

// "FILE:LINE" and "FILE:TEXT" of the caller's folder: the program may run in another one.
std::string absolute_place(const std::string& where) {
  const size_t colon = where.find(':');
  if (colon == std::string::npos || colon == 0 || where[0] == '/') return where;
  std::error_code error;
  return fs::is_regular_file(where.substr(0, colon), error) ? absolute(where.substr(0, colon)) + where.substr(colon)
                                                            : where;
}

size_t size_of(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace).size();
}

// Cuts the largest part again and again: what is small stays whole.
void cut_largest(Json& value, const std::string& path, Json& left_out) {
  if (value.is_string()) {
    std::string text = value.get<std::string>();
    const size_t keep = std::max<size_t>(text.size() / 2, 200);
    left_out.push_back({{"path", path}, {"kept", keep}, {"of", text.size()}});
    value = text.substr(0, keep) + "...";
    return;
  }
  if (value.is_array() && value.size() > 4) {
    const size_t largest = size_of(*std::max_element(
        value.begin(), value.end(), [](const Json& a, const Json& b) { return size_of(a) < size_of(b); }));
    if (largest * 2 < size_of(value)) {  // many items rather than one huge one
      const size_t keep = value.size() / 2;
      left_out.push_back({{"path", path}, {"kept", keep}, {"of", value.size()}});
      value.erase(value.begin() + static_cast<std::ptrdiff_t>(keep), value.end());
      return;
    }
  }
  if (!value.is_structured() || value.empty()) return;
  auto largest = value.begin();
  size_t most = 0;
  for (auto item = value.begin(); item != value.end(); ++item)
    if (const size_t bytes = size_of(*item); bytes > most) {
      most = bytes;
      largest = item;
    }
  const std::string name = value.is_object() ? largest.key() : std::to_string(std::distance(value.begin(), largest));
  cut_largest(*largest, path.empty() ? name : path + "." + name, left_out);
}

}  // namespace

std::span<const Operation> operations() {
  return table();
}

const Operation* find_operation(std::string_view name) {
  const std::string wanted = with_blanks(name);
  for (const Operation& operation : table())
    if (operation.name == wanted) return &operation;
  return nullptr;
}

const Operation& known_operation(std::string_view name) {
  if (const Operation* found = find_operation(name)) return *found;
  std::vector<std::string> names;
  for (const Operation& operation : table()) names.push_back(operation.name);
  const std::vector<std::string> near = nearest_names(with_blanks(name), names, 1);
  fail(Code::kNotFound, "service", "there is no operation '" + std::string(name.substr(0, 100)) + "'",
       {.hint = near.empty() ? "the list of operations" : near[0]});
}

std::vector<RoutedOperation> operations_at(std::string_view path) {
  std::vector<RoutedOperation> found;
  for (const Operation& operation : table())
    if (Json arguments = arguments_in_path(operation, path); arguments.is_object())
      found.push_back({&operation, std::move(arguments)});
  return found;
}

Service::Service(fs::path home, StudioOptions studio)
    : home_(fs::absolute(std::move(home))), sessions_(home_), opened_(home_), studio_options_(std::move(studio)) {}

Studio& Service::studio() {
  const std::lock_guard lock(mutex_);
  if (!studio_) studio_ = std::make_unique<Studio>(home_ / "studio", studio_options_);
  return *studio_;
}

void Service::tell(const std::string& topic, const Json& data) {
  const std::lock_guard lock(mutex_);
  if (studio_) studio_->events().add(topic, data);
}

bool Service::drawing() const {
  const std::lock_guard lock(mutex_);
  return studio_ && studio_->busy();
}

Json Service::call(const Operation& operation, const Json& arguments, CallControl& control) {
  Json answer = call_with_bytes(operation, arguments, control);
  if (!operation.binary.empty())
    if (Json& bytes = answer[operation.binary]; bytes.is_binary()) bytes = base64(bytes.get_binary());
  return answer;
}

Json Service::call_with_bytes(const Operation& operation, const Json& arguments, CallControl& control) {
  // What nobody waits for any more stops at its next check.
  const StopWhen stop([&control] { return control.cancelled(); });
  return operation.call(*this, checked_arguments(operation, arguments), control);
}

Json with_callers_view(const Operation& operation, Json arguments) {
  if (!arguments.is_object()) return arguments;
  for (const Argument& argument : operation.arguments) {
    const auto found = arguments.find(argument.name);
    if (argument.path && found != arguments.end() && found->is_string() && !found->get<std::string>().empty())
      *found =
          argument.name == "where" ? absolute_place(found->get<std::string>()) : absolute(found->get<std::string>());
  }
  const auto takes = [&](const char* name) {
    return !arguments.contains(name) && std::any_of(operation.arguments.begin(), operation.arguments.end(),
                                                    [&](const Argument& argument) { return argument.name == name; });
  };
  if (takes("cwd")) arguments["cwd"] = fs::current_path().string();
  if (takes("whole_environment")) {
    Json variables = Json::object();
    for (const auto& [name, value] : current_environment()) variables[name] = value;
    arguments["whole_environment"] = std::move(variables);
  }
  return arguments;
}

Json bounded(Json result, size_t bytes) {
  Json left_out = Json::array();
  for (int i = 0; i < 200 && size_of(result) > bytes; ++i) {
    const size_t before = size_of(result);
    cut_largest(result, "", left_out);
    if (size_of(result) >= before) break;  // only numbers and keys are left
  }
  if (left_out.empty() || !result.is_object()) return result;
  Json last = Json::array();  // a part that was cut several times is told once
  for (auto item = left_out.rbegin(); item != left_out.rend(); ++item)
    if (std::none_of(last.begin(), last.end(), [&](const Json& told) { return told["path"] == (*item)["path"]; }) &&
        last.size() < 10)
      last.push_back(*item);
  result["left_out"] = {{"parts", last},
                        {"hint", "ask for less at a time: limit, from, filter, a slice or a shorter expression"}};
  return result;
}

}  // namespace lockstep
