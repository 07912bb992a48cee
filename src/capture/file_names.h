// Names of foreign programs as file names: two never share a file, and none leaves its folder.
#pragma once
#include <string>
#include <string_view>

#include "capture/record.h"

namespace lockstep {

// Letters, digits, '-', '_' and inner dots stay; every other byte becomes %XX. Too long for a file system: the
// beginning,
// '~' and a hash of the whole ('~' itself is always escaped, so no short name can look so).
std::string escape_name(std::string_view name);
std::string unescape_name(std::string_view file_name);  // %XX back to bytes; a malformed escape stays as it is

// "transformer.img_in@step0@cond", with "@input" for inputs and "@hit1" from the second hit on.
std::string tensor_file_stem(const TensorKey& key, Role role);
// The inverse for names that were not cut: a folder of exported tensors keeps its steps, passes and hits.
TensorKey key_from_file_stem(std::string_view stem, Role& role);

}  // namespace lockstep
