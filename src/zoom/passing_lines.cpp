#include "zoom/passing_lines.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string_view>

#include "zoom/frames.h"
#include "zoom/source_lines.h"

namespace lockstep::zoom {
namespace {

constexpr int kMostLinesBetween = 40;
constexpr size_t kMostStepsOfNumbers = 4;  // of a region that is not narrowed, for its numbers to be asked after

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

void add_once(const Place& place, Region& region) {
  if (std::find(region.passing.begin(), region.passing.end(), place) == region.passing.end())
    region.passing.push_back(place);
}

void add_between(const Place& made, const Place& taken, Sources& sources, Region& region) {
  if (made.file != taken.file || made.function != taken.function || taken.line - made.line > kMostLinesBetween) return;
  for (int line = made.line + 1; line < taken.line; ++line) {
    const Place place{made.file, made.function, line};
    if (only_passes_on(sources.line(place))) add_once(place, region);
  }
}

// The names that a line of code holds.
std::set<std::string> names_in(std::string_view code) {
  std::set<std::string> out;
  while (!code.empty()) {
    const std::string_view before = code;
    if (take_name(code))
      out.emplace(before.substr(0, before.size() - code.size()));
    else
      code.remove_prefix(1);
  }
  return out;
}

// `name = ...` or `name += ...`, of one of these names; its name.
std::optional<std::string> sets_one_of(std::string_view code, const std::set<std::string>& names) {
  const std::string_view before = code;
  if (!take_name(code)) return std::nullopt;
  std::string name(before.substr(0, before.size() - code.size()));
  const bool sets = code.starts_with(" = ") || (code.size() > 3 && code.starts_with(" ") && code.substr(2, 2) == "= ");
  return sets && names.contains(name) ? std::optional(std::move(name)) : std::nullopt;
}

bool computes(const Side& yours, const Place& place) {
  return std::any_of(yours.tape().steps.begin(), yours.tape().steps.end(), [&](const Step& step) {
    return std::any_of(step.where.begin(), step.where.end(),
                       [&](const Place& one) { return one.line == place.line && one.file == place.file; });
  });
}

// The names between square brackets: what an index is made of. With `all`, also those between round ones.
std::set<std::string> names_in_brackets(std::string_view code, bool all) {
  std::set<std::string> out;
  int depth = 0;
  while (!code.empty()) {
    const std::string_view before = code;
    if (take_name(code)) {
      if (depth > 0) out.emplace(before.substr(0, before.size() - code.size()));
      continue;
    }
    if (code.front() == '[' || (all && code.front() == '(')) ++depth;
    if (code.front() == ']' || (all && code.front() == ')')) --depth;
    code.remove_prefix(1);
  }
  return out;
}

bool hold_one_of(const std::set<std::string>& names, const std::set<std::string>& others) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return others.contains(name); });
}

// The numbers that a step's line was given, which no tensor tells of: where its function last set them, in each branch
// that may have been taken, or the call that the function was given them by.
void add_lines_of_numbers(const Step& step, const Side& yours, Sources& sources, Region& region) {
  const size_t frame = std::min(static_cast<size_t>(region.frame), step.where.size() - 1);
  const Place& line = step.where[frame];
  std::set<std::string> wanted = names_in(sources.line(line));
  const std::set<std::string> numbers = names_in_brackets(sources.line(line), step.operands.empty());
  for (Place at = line; at.line > std::max(1, line.line - kMostLinesBetween) && !wanted.empty();) {
    --at.line;
    const std::string code = sources.line(at);
    if (code.starts_with("def ") || code.starts_with("async def ")) {
      if (hold_one_of(names_in(code), numbers) && frame + 1 < step.where.size())
        add_once(step.where[frame + 1], region);
      return;
    }
    const auto name = sets_one_of(code, wanted);
    if (!name) continue;
    if (sources.indentation(at) <= sources.indentation(line)) wanted.erase(*name);
    if (!computes(yours, at)) add_once(at, region);
  }
}

bool selects_by_numbers(const Step& step) {
  static const std::set<std::string_view> kKinds{"getitem", "setitem", "narrow", "select", "split",
                                                 "roll",    "repeat",  "expand", "pad"};
  return kKinds.contains(step.kind) || step.operands.empty();
}

// Of another parameter: a function may have been given it, and then the call that names it is what is wrong.
void move_to_the_line_that_names(const std::string& parameter, const Side& yours, Sources& sources, Region& region) {
  static const std::set<std::string, std::less<>> kEveryLayer{"weight", "bias", "self"};
  std::set<std::string> parts = names_in(parameter);
  std::erase_if(parts, [](const std::string& part) { return kEveryLayer.contains(part); });
  for (const int step : region.yours) {
    const std::vector<Place>& chain = yours.step(step).where;
    for (size_t frame = static_cast<size_t>(region.frame); frame < chain.size(); ++frame)
      if (hold_one_of(names_in(sources.line(chain[frame])), parts)) {
        region.frame = static_cast<int>(frame);
        return;
      }
  }
}

// `kept = ...` or `h = kept = ...`, of one of these names.
bool gives_a_name(std::string_view code, const std::set<std::string>& names) {
  const std::set<std::string> given = names_in(code.substr(0, code.rfind(" = ")));
  return code.find(" = ") != std::string_view::npos && hold_one_of(given, names);
}

// The value that one line makes and another takes by mistake: the name may have been given to it there, or in between.
void add_names_of_what_is_taken(const Side& yours, Sources& sources, Region& region) {
  if (region.yours_value < 0 || yours.value(region.yours_value).step < 0) return;
  const Step& maker = yours.step(yours.value(region.yours_value).step);
  const std::vector<int> users = region.yours;
  for (const int user : users)
    if (const auto frames = meeting_frames(maker, yours.step(user))) {
      const Place &made = maker.where[static_cast<size_t>(frames->first)],
                  &taken = yours.step(user).where[static_cast<size_t>(frames->second)];
      add_between(made, taken, sources, region);
      if (!(made == taken) && gives_a_name(sources.line(made), names_in(sources.line(taken)))) add_once(made, region);
    }
}

}  // namespace

void add_passing_lines(std::vector<Region>& regions, const Side& yours) {
  Sources sources;
  for (Region& region : regions) {
    if (region.kind == Kind::kWiring) add_names_of_what_is_taken(yours, sources, region);
    if (region.kind == Kind::kParameter && region.yours_value >= 0)
      move_to_the_line_that_names(yours.value(region.yours_value).name, yours, sources, region);
    const bool is_small = region.kind == Kind::kNotNarrowed && region.yours.size() <= kMostStepsOfNumbers;
    if (region.kind == Kind::kOperation || region.kind == Kind::kArgument || is_small)
      for (const int step : region.yours)
        if (!yours.step(step).where.empty() && (region.kind == Kind::kArgument || selects_by_numbers(yours.step(step))))
          add_lines_of_numbers(yours.step(step), yours, sources, region);
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
