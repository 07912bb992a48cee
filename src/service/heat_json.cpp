#include "service/heat_json.h"

#include <cstring>

namespace lockstep {
namespace {

constexpr double kMostCells = 1024, kMostRow = 1e15;

}  // namespace

std::vector<Argument> window_arguments() {
  using enum ArgumentType;
  const auto whole = [](const char* name, const char* help, Json standard, double least, double most) {
    return Argument{
        .name = name, .type = kInteger, .help = help, .standard = std::move(standard), .least = least, .most = most};
  };
  return {{.name = "slice", .help = "only this part: NumPy-like, [0, 3]; the last axis lies across, all others down"},
          whole("top", "first row", 0, 0, kMostRow),
          whole("left", "first column", 0, 0, kMostRow),
          whole("rows", "rows from there; 0: all", 0, 0, kMostRow),
          whole("columns", "columns from there; 0: all", 0, 0, kMostRow),
          whole("height", "most cells down", 256, 1, kMostCells),
          whole("width", "most cells across", 256, 1, kMostCells)};
}

MapWindow window_from(const Json& arguments) {
  return {arguments["top"].get<int64_t>(), arguments["left"].get<int64_t>(), arguments["rows"].get<int64_t>(),
          arguments["columns"].get<int64_t>()};
}

Json json_from(const HeatMap& map) {
  return {{"rows", map.rows},
          {"columns", map.columns},
          {"top", map.window.top},
          {"left", map.window.left},
          {"window_rows", map.window.rows},
          {"window_columns", map.window.columns},
          {"height", map.height},
          {"width", map.width},
          {"limit", json_number(map.limit())},
          {"sampled", map.sampled},
          {"looked_at", map.looked_at}};
}

void append_cells(std::vector<uint8_t>& bytes, const HeatMap& map) {
  const size_t at = bytes.size(), size = map.cells.size() * sizeof(float);
  bytes.resize(at + size);
  if (size) std::memcpy(bytes.data() + at, map.cells.data(), size);
}

}  // namespace lockstep
