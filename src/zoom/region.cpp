#include "zoom/region.h"

#include <algorithm>
#include <map>
#include <set>

#include "zoom/frames.h"
#include "zoom/partners.h"

namespace lockstep::zoom {
namespace {

using Line = std::pair<std::string, int>;

std::set<Line> line_set(const Side& side, const Region& region) {
  std::set<Line> out;
  for (const Place& place : lines_of(side, region.yours, region.frame)) out.emplace(place.file, place.line);
  return out;
}

bool same_invocation(const std::vector<Place>& a, const std::vector<Place>& b) {
  return a.size() == b.size() && !a.empty() && a.front().function == b.front().function &&
         std::equal(a.begin() + 1, a.end(), b.begin() + 1);
}

// Whether the function that this step ran in gave a result that the reference has too.
bool invocation_is_right(const Side& yours, int step, Partners& partners) {
  const std::vector<Place>& chain = yours.step(step).where;
  int last = step;
  for (int i = step; i < static_cast<int>(yours.tape().steps.size()); ++i)
    if (!yours.step(i).simple && same_invocation(yours.step(i).where, chain)) last = i;
  const std::vector<int>& outputs = yours.step(last).outputs;
  return !outputs.empty() && std::all_of(outputs.begin(), outputs.end(), [&](int output) {
    return !partners.is_neutral(yours, output) && !partners.of_yours(output).empty();
  });
}

// How far out the blame moves: to the first frame in which this execution differs from one of the same line that is
// right.
int acquitted_frame(const Side& yours, const Region& region, Partners& partners) {
  if (region.yours.size() != 1 || region.kind == Kind::kParameter) return region.frame;
  const int blamed = region.yours.front();
  const std::vector<Place>& chain = yours.step(blamed).where;
  int frame = 0;
  for (int i = 0; i < static_cast<int>(yours.tape().steps.size()); ++i) {
    const Step& other = yours.step(i);
    if (i == blamed || other.simple || other.kind != yours.step(blamed).kind || other.where.empty() || chain.empty() ||
        !(other.where.front() == chain.front()) || same_invocation(other.where, chain))
      continue;
    if (!invocation_is_right(yours, i, partners)) continue;
    size_t same = 0;
    while (same < chain.size() && same < other.where.size() && chain[same] == other.where[same]) ++same;
    if (same < chain.size() && same < other.where.size()) frame = std::max(frame, static_cast<int>(same));
  }
  return frame;
}

// Of the steps around a gap, those of another function say nothing about where it is.
void keep_steps_in(const Side& yours, const Place& place, Region& region) {
  std::erase_if(region.yours, [&](int step) {
    const std::vector<Place>& chain = yours.step(step).where;
    return step != region.yours.back() && (static_cast<size_t>(region.frame) >= chain.size() ||
                                           chain[static_cast<size_t>(region.frame)].function != place.function);
  });
}

// A step that is missing has no line of yours: the place to put it is in the function whose counterpart has it.
bool meet_in_one_function(const Side& reference, const Side& yours, Region& region) {
  if (region.yours.empty() || region.reference.empty()) return false;
  const std::vector<Place>& mine = yours.step(region.yours.back()).where;
  const std::vector<Place>& theirs = reference.step(region.reference.back()).where;
  for (size_t i = 0; i < mine.size(); ++i)
    for (size_t j = 0; j < theirs.size(); ++j)
      if (mine[i].function == theirs[j].function) {
        region.frame = static_cast<int>(i);
        region.reference_frame = static_cast<int>(j);
        keep_steps_in(yours, mine[i], region);
        return true;
      }
  return false;
}

// Of a gap between what makes a value and what takes it: both as the function says it that does the one after the
// other.
bool meet_where_it_is_passed_on(const Side& yours, Region& region) {
  if (region.yours.size() != 2) return false;
  const Step &maker = yours.step(region.yours.front()), &user = yours.step(region.yours.back());
  const auto frames = meeting_frames(maker, user);
  if (!frames) return false;
  region.frame = frames->first;
  const Place &taken = user.where[static_cast<size_t>(frames->second)], &inside = user.where.front();
  if (!(taken == maker.where[static_cast<size_t>(frames->first)])) region.passing.push_back(taken);
  if (frames->second > 0) region.passing.push_back(inside);
  region.yours.pop_back();
  return true;
}

// Steps of several lines that all happen in one call, or in a function whose other calls yours makes too: the line of
// the call says what is missing.
int frame_of_the_call(const Side& side, const std::vector<int>& steps, Partners& partners) {
  size_t depth = SIZE_MAX;  // of the shallowest chain
  for (const int step : steps) depth = std::min(depth, side.step(step).where.size());
  if (steps.empty() || depth == SIZE_MAX || depth < 2) return 0;
  const std::vector<Place>& chain = side.step(steps.back()).where;
  for (int i = 0; i < static_cast<int>(side.tape().steps.size()); ++i) {
    const Step& other = side.step(i);
    if (other.simple || other.where.size() < 2 || !(other.where.front() == chain.front()) || other.where == chain)
      continue;
    const bool made_by_yours = std::any_of(other.outputs.begin(), other.outputs.end(), [&](int output) {
      return !partners.is_neutral(side, output) && !partners.of_reference(output).empty();
    });
    size_t same = 0;
    while (same < chain.size() && same < other.where.size() && chain[same] == other.where[same]) ++same;
    if (made_by_yours && same < depth) return static_cast<int>(same);
  }
  if (lines_of(side, steps, 0).size() < 2) return 0;
  for (size_t back = 1; back < depth; ++back)
    if (lines_of(side, steps, static_cast<int>(back)).size() == 1) return static_cast<int>(back);
  return 0;
}

// Several parts of one result, each used where another belongs: they were unpacked in the wrong order.
void blame_the_unpacking(std::vector<Region>& regions, const Side& yours) {
  std::map<Line, std::vector<size_t>> by_line;  // of the step that took it out of the whole
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i].kind != Kind::kWiring) continue;
    const int maker = yours.value(regions[i].yours_value).step;
    if (maker < 0 || yours.step(maker).where.empty()) continue;
    const Place& place = yours.step(maker).where.front();
    if (yours.step(maker).outputs.size() > 1 || yours.step(maker).kind == "getitem")
      by_line[{place.file, place.line}].push_back(i);
  }
  for (const auto& [line, of] : by_line) {
    const int maker = yours.value(regions[of.front()].yours_value).step;
    std::set<Line> lines;
    for (const size_t i : of)
      for (const Place& place : lines_of(yours, regions[i].yours, 0)) lines.emplace(place.file, place.line);
    std::set<int> parts;
    for (const size_t i : of) parts.insert(regions[i].yours_value);
    if (lines.size() < 2 && parts.size() < 2) continue;
    for (const size_t i : of) {
      // Used in one line alone, they may have been exchanged there as well.
      if (lines.size() < 2)
        regions[i].yours.push_back(maker);
      else
        regions[i].yours = {maker};
      regions[i].note = "the parts are used in each other's places; " + regions[i].note;
    }
  }
}

}  // namespace

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kOperation:
      return "operation";
    case Kind::kArgument:
      return "argument";
    case Kind::kMissingStep:
      return "missing step";
    case Kind::kExtraStep:
      return "extra step";
    case Kind::kWiring:
      return "wiring";
    case Kind::kParameter:
      return "other parameter";
    case Kind::kLayout:
      return "layout";
    case Kind::kPrecision:
      return "precision";
    case Kind::kNotNarrowed:
      break;
  }
  return "not narrowed";
}

std::vector<Place> lines_of(const Side& side, const std::vector<int>& steps, int frame) {
  std::vector<int> ordered = steps;
  std::sort(ordered.begin(), ordered.end());
  std::vector<Place> out;
  for (const int step : ordered) {
    const std::vector<Place>& chain = side.step(step).where;
    if (chain.empty()) continue;
    const Place& place = chain[std::min(static_cast<size_t>(frame), chain.size() - 1)];
    if (std::find(out.begin(), out.end(), place) == out.end()) out.push_back(place);
  }
  return out;
}

std::vector<Place> yours_of(const Side& yours, const Region& region) {
  std::vector<Place> out = lines_of(yours, region.yours, region.frame);
  for (const Place& place : region.passing)
    if (std::find(out.begin(), out.end(), place) == out.end()) out.push_back(place);
  return out;
}

void tidy(std::vector<Region>& regions, const Side& reference, const Side& yours, Partners& partners) {
  for (Region& region : regions) {
    std::sort(region.yours.begin(), region.yours.end());
    region.yours.erase(std::unique(region.yours.begin(), region.yours.end()), region.yours.end());
    std::sort(region.reference.begin(), region.reference.end());
    region.reference.erase(std::unique(region.reference.begin(), region.reference.end()), region.reference.end());
    if (region.same_function && meet_in_one_function(reference, yours, region)) continue;
    if (region.kind == Kind::kMissingStep)
      region.reference_frame = frame_of_the_call(reference, region.reference, partners);
    if (region.same_function && meet_where_it_is_passed_on(yours, region)) continue;
    if (region.same_function && !region.yours.empty() && !yours.step(region.yours.back()).where.empty())
      keep_steps_in(yours, yours.step(region.yours.back()).where.front(), region);
    region.frame = acquitted_frame(yours, region, partners);
  }
  blame_the_unpacking(regions, yours);
  std::vector<std::set<Line>> lines;
  for (const Region& region : regions) lines.push_back(line_set(yours, region));
  std::vector<Region> kept;
  for (size_t i = 0; i < regions.size(); ++i) {
    bool holds_another = false;
    for (size_t j = 0; j < regions.size() && !holds_another; ++j)
      if (i != j && !lines[j].empty() &&
          std::includes(lines[i].begin(), lines[i].end(), lines[j].begin(), lines[j].end()))
        holds_another = lines[j].size() < lines[i].size() || j < i;
    if (!holds_another) kept.push_back(std::move(regions[i]));
  }
  regions = std::move(kept);
}

}  // namespace lockstep::zoom
