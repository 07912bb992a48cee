// What run.json says of a run that begins.
#pragma once
#include <string>

#include "base/json.h"

namespace lockstep {

Json new_manifest(const std::string& name, const std::string& id, const Json& details);

}  // namespace lockstep
