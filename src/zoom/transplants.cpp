#include "zoom/transplants.h"

#include <algorithm>
#include <map>

#include "zoom/forms.h"

namespace lockstep::zoom {
namespace {

constexpr int kMostTried = 300;          // replays tried in one search
constexpr int kMostTriedTogether = 150;  // of several values at once
constexpr size_t kMostExecutions = 32;   // of one line

// Of these values each with the others that were made by the same operation in the same line, in order of execution;
// those that stand alone are left out.
std::vector<std::vector<int>> executions_of_lines(const Side& side, const std::vector<int>& values) {
  std::map<std::tuple<std::string, int, std::string, size_t>, std::vector<int>> by_line;
  for (const int value : values) {
    const int maker = side.value(value).step;
    if (maker < 0 || side.step(maker).simple || side.step(maker).where.empty()) continue;
    const Step& step = side.step(maker);
    const auto part = std::find(step.outputs.begin(), step.outputs.end(), value) - step.outputs.begin();
    const Place& place = step.where.front();
    by_line[{place.file, place.line, step.kind, static_cast<size_t>(part)}].push_back(value);
  }
  std::vector<std::vector<int>> out;
  for (auto& [line, executions] : by_line)
    if (executions.size() > 1 && executions.size() <= kMostExecutions) out.push_back(std::move(executions));
  // The line that is executed first may be what the others' results are wrong for.
  std::sort(out.begin(), out.end(), [&](const std::vector<int>& a, const std::vector<int>& b) {
    return side.value(a.front()).step < side.value(b.front()).step;
  });
  return out;
}

// Of a line that does the same operation several times in each of its executions: every so many-th result.
std::vector<int> every(size_t times, size_t first, const std::vector<int>& values) {
  std::vector<int> out;
  for (size_t i = first; i < values.size(); i += times) out.push_back(values[i]);
  return out;
}

int before_moves(const Side& side, int value) {
  std::vector<int> moved;
  return stripped(side, value, moved);
}

bool of_one_size(const Side& yours, const std::vector<int>& mine, const Side& reference,
                 const std::vector<int>& theirs) {
  return std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end(), [&](int c, int r) {
    return checked_numel(yours.value(c).shape) == checked_numel(reference.value(r).shape);
  });
}

}  // namespace

bool Transplants::by_transplant(int c, int r, int user_c, int user_r) {
  const std::vector<int> mine = unmatched_ancestors(yours_, c), theirs = unmatched_ancestors(reference_, r);
  const auto result = yours_.numbers(c);
  if (!result || result->count() > kMostReplay) return false;
  for (const int rk : theirs)
    for (const int cj : mine) {
      // Zeros prove nothing: the reference makes them of zeros in many a place.
      if (tried_ > kMostTried || yours_.totals(cj).squares == 0) continue;
      if (before_moves(yours_, cj) == before_moves(yours_, c) &&
          before_moves(reference_, rk) == before_moves(reference_, r))
        continue;
      if (checked_numel(yours_.value(cj).shape) != checked_numel(reference_.value(rk).shape)) continue;
      ++tried_;
      if (!gives({{cj, rk}}, r, *result)) continue;
      const bool before = proven_;
      proven_ = true;
      locate(cj, rk, user_c, user_r);
      proven_ = before;
      return true;
    }
  return by_transplant_of_all(c, r, user_c, user_r);
}

bool Transplants::by_transplant_of_all(int c, int r, int user_c, int user_r) {
  const auto result = yours_.numbers(c);
  const auto mine = executions_of_lines(yours_, unmatched_ancestors(yours_, c));
  const auto theirs = executions_of_lines(reference_, unmatched_ancestors(reference_, r));
  for (const std::vector<int>& all_r : theirs)
    for (const std::vector<int>& all_c : mine) {
      const size_t times_c = std::max<size_t>(1, all_c.size() / all_r.size()),
                   times_r = std::max<size_t>(1, all_r.size() / all_c.size());
      if (all_c.size() * times_r != all_r.size() * times_c) continue;
      for (size_t first = 0; first < std::max(times_c, times_r); ++first) {
        const std::vector<int> of_c = every(times_c, std::min(first, times_c - 1), all_c),
                               of_r = every(times_r, std::min(first, times_r - 1), all_r);
        if (of_c.size() > 1 && by_executions(of_c, of_r, r, *result, user_c, user_r)) return true;
      }
    }
  return false;
}

bool Transplants::by_executions(const std::vector<int>& of_c, const std::vector<int>& of_r, int r,
                                const Numbers& result, int user_c, int user_r) {
  if (!of_one_size(yours_, of_c, reference_, of_r) || ++tried_together_ > kMostTriedTogether) return false;
  ValuePairs places;
  for (size_t i = 0; i < of_c.size(); ++i) places.emplace_back(of_c[i], of_r[i]);
  if (!gives(places, r, result)) return false;
  const bool before = proven_;
  ValuePairs others(places.begin() + 1, places.end());
  proven_ = true;
  std::swap(others, other_executions_);
  locate(of_c.front(), of_r.front(), user_c, user_r);
  std::swap(others, other_executions_);
  proven_ = before;
  return true;
}

bool Transplants::may_replay(int r, const std::set<int>& from, int times) {
  const double work = times * replay_work(reference_, r, from);
  if (work > replay_left_) return false;
  replay_left_ -= work;
  return true;
}

bool Transplants::gives(const ValuePairs& places, int r, const Numbers& result) {
  std::vector<std::vector<std::shared_ptr<const Numbers>>> forms;  // of each place
  std::set<int> from;
  for (const auto& [mine, theirs] : places) {
    const auto numbers = yours_.numbers(mine);
    if (!numbers) return false;
    forms.push_back(forms_of(*numbers, reference_.value(theirs).shape));
    from.insert(theirs);
  }
  for (size_t form = 0; form < forms.front().size(); ++form) {
    Given given;
    for (size_t i = 0; i < places.size(); ++i) {
      if (form >= forms[i].size()) return false;
      given[places[i].second] = forms[i][form];
    }
    if (!may_replay(r, from)) return false;
    const auto made = replay(reference_, r, given);
    if (!made) return false;
    if (agreement_of(result, *made, partners_.tolerance())) return true;
  }
  return false;
}

}  // namespace lockstep::zoom
