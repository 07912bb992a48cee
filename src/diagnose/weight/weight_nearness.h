// Which weights of a checkpoint are most likely taken for each other: neighbours of one block, then the same projection
// in other blocks, the nearest first, then the rest.
#pragma once
#include <string>
#include <vector>

namespace lockstep {

void sort_by_nearness(std::vector<std::string>& names, const std::string& own);

}  // namespace lockstep
