// What a second run should keep in full: the first tensor that looks wrong and what it was made from.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "diagnose/case/run_view.h"
#include "diagnose/case/structure.h"

namespace lockstep {

// Names for `record --full`, of records whose values are not there; at most a dozen, a parent's glob when there are
// more.
std::vector<std::string> names_to_record(const RunView& reference, const RunView& candidate, const Structure& structure,
                                         const std::function<size_t(size_t)>& partner, size_t record);
// The command line that keeps them.
std::string record_command(const std::vector<std::string>& names);

}  // namespace lockstep
