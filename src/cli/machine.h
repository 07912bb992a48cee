// What this machine and this build offer, as `lockstep doctor` tells it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/platform/machine_facts.h"

namespace lockstep {

std::vector<std::pair<std::string, std::string>> library_versions();

struct PythonFacts {
  std::string path, version;  // empty: none found
};
Json doctor_json();  // all of it

PythonFacts python_facts();  // .venv of the working directory, else python3 of the PATH

}  // namespace lockstep
