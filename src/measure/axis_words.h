// What the axes of a tensor are called when we speak about them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tensor/shape.h"

namespace lockstep {

// "batch item", "token", "head", "channel", "row", "column", "frame", from the stage's name and the shape; one per
// axis.
std::vector<std::string> axis_words(std::string_view name, const Shape& shape);
std::string plural(std::string_view word);
std::string index_set_words(const std::string& word, const std::vector<bool>& marked);  // "tokens 256 and later"

}  // namespace lockstep
