// Heat maps as answers: the numbers beside the cells as JSON, the cells as bytes of float32.
#pragma once
#include <string_view>
#include <vector>

#include "base/json.h"
#include "measure/heat_map.h"
#include "service/operation.h"

namespace lockstep {

std::vector<Argument> window_arguments();  // slice, top, left, rows, columns, height, width
MapWindow window_from(const Json& arguments);
Json json_from(const HeatMap& map);  // without its cells
void append_cells(std::vector<uint8_t>& bytes, const HeatMap& map);

}  // namespace lockstep
