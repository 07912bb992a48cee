// The names a pickle may mention, and what each stands for. Nothing outside this list exists for the reader.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "io/pickle.h"

namespace lockstep {

bool is_accepted_global(std::string_view name);

// What calling the global `name` would give: a tensor, a dictionary, a tuple.
PickleValue rebuild(const std::string& name, const std::vector<PickleRef>& arguments, std::string_view origin);

PickleStorage storage_from_id(const PickleValue& id, std::string_view origin);

}  // namespace lockstep
