#include "zoom/passing_lines.h"

#include <algorithm>
#include <regex>

#include "zoom/source_lines.h"

namespace lockstep::zoom {
namespace {

constexpr int kMostLinesBetween = 40;

bool only_passes_on(const std::string& code) {
  static const std::regex kForm(R"(^[A-Za-z_][A-Za-z_0-9]* = [A-Za-z_][A-Za-z_0-9]*( *#.*)?$)");
  return std::regex_match(code, kForm);
}

void add_between(const Place& made, const Place& taken, Sources& sources, Region& region) {
  if (made.file != taken.file || made.function != taken.function || taken.line - made.line > kMostLinesBetween) return;
  for (int line = made.line + 1; line < taken.line; ++line) {
    const Place place{made.file, made.function, line};
    if (only_passes_on(sources.line(place)) &&
        std::find(region.passing.begin(), region.passing.end(), place) == region.passing.end())
      region.passing.push_back(place);
  }
}

}  // namespace

void add_passing_lines(std::vector<Region>& regions, const Side& yours) {
  Sources sources;
  for (Region& region : regions) {
    if (region.kind != Kind::kOperation && region.kind != Kind::kMissingStep) continue;
    for (const int step : region.yours)
      for (const Step& user : yours.tape().steps) {
        const bool takes = std::any_of(user.operands.begin(), user.operands.end(),
                                       [&](const Operand& operand) { return yours.value(operand.value).step == step; });
        const std::vector<Place>& made = yours.step(step).where;
        const auto frame = static_cast<size_t>(region.frame);
        if (takes && !user.simple && frame < made.size() && frame < user.where.size())
          add_between(made[frame], user.where[frame], sources, region);
      }
  }
}

}  // namespace lockstep::zoom
