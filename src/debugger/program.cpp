#include "debugger/program.h"

#include "base/error.h"
#include "base/strict_stream.h"
#include "capture/recorded_program.h"

namespace lockstep {
namespace {
constexpr uintmax_t kMostSourceBytes = 32 << 20;  // no source that a person has written is larger
}

std::string active_python(const Environment& environment) {
  if (const auto active = environment.find("VIRTUAL_ENV"); active != environment.end() && !active->second.empty()) {
    const fs::path python = fs::path(active->second) / "bin" / "python";
    std::error_code error;
    if (fs::exists(python, error)) return python.string();
  }
  for (const char* name : {"python3", "python"}) try {
      return find_program(name, environment, "/").string();
    } catch (const Error&) {  // the next one
    }
  fail(Code::kNotFound, "start", "there is no Python on the PATH", {.hint = "--python"});
}

std::string program_name(const SessionRequest& request) {
  if (!request.module.empty()) return request.module;
  return fs::path(request.script).stem().string();
}

ChildRequest child_for(const SessionRequest& request, const fs::path& folder, const fs::path& socket,
                       const std::string& token) {
  const fs::path package = python_package_folder();
  ChildRequest child;
  child.argv = {request.python.empty() ? active_python(request.environment) : request.python,
                (package / "lockstep" / "agent" / "bootstrap.py").string()};
  if (request.module.empty()) {
    child.argv.push_back(request.script);
  } else {
    child.argv.insert(child.argv.end(), {"-m", request.module});
  }
  child.argv.insert(child.argv.end(), request.arguments.begin(), request.arguments.end());
  child.cwd = request.cwd;
  child.input = request.input;
  child.output = folder / "output.log";
  child.environment = request.environment;
  const Json options{{"run", request.run},
                     {"on_disconnect", request.on_disconnect},
                     {"stop_on_exception", request.on_exception == "stop" ? "uncaught" : "never"},
                     {"check_bounds", request.check_bounds},
                     {"count_calls", request.count_calls},
                     {"breakpoints", request.breakpoints}};
  child.environment["LOCKSTEP_AGENT_SOCKET"] = socket.string();
  child.environment["LOCKSTEP_AGENT_TOKEN"] = token;
  child.environment["LOCKSTEP_AGENT_SESSION"] = folder.string();
  child.environment["LOCKSTEP_AGENT_OPTIONS"] = options.dump(-1, ' ', true, Json::error_handler_t::replace);
  child.environment["LOCKSTEP_HOME"] = request.home.string();
  if (const fs::path library = capture_library(); !library.empty())
    child.environment.emplace("LOCKSTEP_LIBRARY", library.string());
  // Its output goes to a file, where Python would otherwise hold it back until the end.
  child.environment.emplace("PYTHONUNBUFFERED", "1");
  return child;
}

Json json_from(const SessionRequest& request) {
  return {{"script", request.script},
          {"module", request.module},
          {"arguments", request.arguments},
          {"python", request.python},
          {"cwd", request.cwd.string()},
          {"stdin", request.input.string()},
          {"run", request.run},
          {"check_bounds", request.check_bounds},
          {"count_calls", request.count_calls},
          {"on_disconnect", request.on_disconnect},
          {"on_exception", request.on_exception}};
}

SessionRequest request_from(const Json& record, const fs::path& home) {
  const auto text = [&](const char* name) {
    const auto found = record.find(name);
    return found != record.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto flag = [&](const char* name) {
    const auto found = record.find(name);
    return found != record.end() && found->is_boolean() && found->get<bool>();
  };
  SessionRequest request;
  if (!record.is_object()) return request;
  request.home = home;
  request.script = text("script");
  request.module = text("module");
  if (const auto words = record.find("arguments"); words != record.end() && words->is_array())
    for (const Json& word : *words)
      if (word.is_string()) request.arguments.push_back(word.get<std::string>());
  request.python = text("python");
  request.cwd = text("cwd");
  request.input = text("stdin");
  request.run = flag("run");
  request.check_bounds = flag("check_bounds");
  request.count_calls = flag("count_calls");
  const std::string then = text("on_disconnect");
  request.on_disconnect = then == "wait" || then == "terminate" ? then : "continue";
  if (text("on_exception") == "end") request.on_exception = "end";
  return request;
}

Json code_around(const Json& location, int around) {
  if (!location.is_object() || !location.contains("file") || !location["file"].is_string() ||
      !location.contains("line") || !location["line"].is_number_integer())
    return nullptr;
  const int64_t current = location["line"].get<int64_t>(), first = std::max<int64_t>(1, current - around);
  std::error_code error;
  const fs::path file = location["file"].get<std::string>();
  if (!fs::is_regular_file(file, error) || fs::file_size(file, error) > kMostSourceBytes) return nullptr;
  std::ifstream in = strict_file(file);
  Json lines = Json::array();
  int64_t number = 0;
  for (std::string line; number < current + around && std::getline(in, line);)
    if (++number >= first) lines.push_back(line.size() > 300 ? line.substr(0, 300) + "..." : line);
  if (lines.empty()) return nullptr;
  return {{"first", first}, {"current", current}, {"lines", lines}};
}

}  // namespace lockstep
