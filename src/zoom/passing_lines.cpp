#include "zoom/passing_lines.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "zoom/source_lines.h"

namespace lockstep::zoom {
namespace {

constexpr int kMostLinesBetween = 40;

// A name at the start of `code`, which is taken off it; false without one.
bool take_name(std::string_view& code) {
  const auto is_part = [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; };
  const size_t length = static_cast<size_t>(std::find_if_not(code.begin(), code.end(), is_part) - code.begin());
  if (length == 0 || std::isdigit(static_cast<unsigned char>(code.front()))) return false;
  code.remove_prefix(length);
  return true;
}

// `name = name`, with or without a comment behind it.
bool only_passes_on(std::string_view code) {
  constexpr std::string_view kGets = " = ";
  if (!take_name(code) || !code.starts_with(kGets)) return false;
  code.remove_prefix(kGets.size());
  if (!take_name(code)) return false;
  const size_t rest = code.find_first_not_of(' ');
  return rest == std::string_view::npos ? code.empty() : code[rest] == '#';
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
