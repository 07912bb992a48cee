#include "base/environment.h"

#include <string_view>

#include "base/platform/executable.h"

namespace lockstep {

Environment current_environment() {
  Environment variables;
  for (char** entry = environment_entries(); *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

}  // namespace lockstep
