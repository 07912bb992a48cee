// What a session starts: a Python script or module, in its own Python, with its own arguments, environment and folder.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "debugger/child_process.h"

namespace lockstep {

struct SessionRequest {
  fs::path home;
  std::string name;            // empty: after the script
  std::string script, module;  // one of the two
  std::vector<std::string> arguments;
  std::string python;       // empty: the environment's own
  Environment environment;  // whole
  fs::path cwd;
  fs::path input;  // the program's stdin; empty: at its end
  bool run = false, check_bounds = false, count_calls = false;
  std::string on_disconnect = "wait", on_exception = "stop";
  Json breakpoints = Json::array();  // set before the first line
};

// The Python of the active virtual environment, else python3 or python of the PATH.
std::string active_python(const Environment& environment);

ChildRequest child_for(const SessionRequest& request, const fs::path& folder, const fs::path& socket,
                       const std::string& token);

std::string program_name(const SessionRequest& request);  // "generate" of tools/generate.py, "pkg.main" of -m pkg.main

Json json_from(const SessionRequest& request);  // without the environment, which may hold secrets
SessionRequest request_from(const Json& record, const fs::path& home);  // as far as json_from has kept it

// The lines around a place, from the file: {first, current, lines}. Null where there is no such file.
Json code_around(const Json& location, int around);

}  // namespace lockstep
