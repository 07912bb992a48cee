#include "compare/run_view.h"

namespace lockstep {

std::string_view role_name(Role role) {
  switch (role) {
    case Role::kOutput:
      return "output";
    case Role::kInput:
      return "input";
    case Role::kVariable:
      return "variable";
    case Role::kCheckpoint:
      break;
  }
  return "checkpoint";
}

Role role_from_name(std::string_view name) {
  if (name == "output") return Role::kOutput;
  if (name == "input") return Role::kInput;
  if (name == "variable") return Role::kVariable;
  return Role::kCheckpoint;
}

}  // namespace lockstep
