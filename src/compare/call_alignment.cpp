#include "compare/call_alignment.h"

#include <algorithm>
#include <map>

#include "base/interrupt.h"
#include "compare/likeness.h"

namespace lockstep {
namespace {

constexpr size_t kMostCallsLooked = 24;  // of a name on each side; of more the order alone is known
constexpr double kEqualCall = 0.01;
constexpr size_t kMostVoters = 200;

using Matches = std::vector<int>;  // for each call of the reference the candidate's, or -1

// The one call that has the same values; of several none, for then they do not tell.
Matches by_content(const NamedCalls& calls, LikenessOracle& likeness) {
  Matches out(calls.reference.size(), -1);
  if (calls.reference.size() > kMostCallsLooked || calls.candidate.size() > kMostCallsLooked) return out;
  std::vector<int> taken(calls.candidate.size(), 0);
  for (size_t i = 0; i < out.size(); ++i) {
    int found = -1, count = 0;
    for (size_t j = 0; j < calls.candidate.size(); ++j) {
      const Likeness like = likeness.of(calls.reference[i], calls.candidate[j]);
      if (like.known && like.error < kEqualCall && like.weight > 0.3) found = static_cast<int>(j), ++count;
    }
    if (count == 1) out[i] = found, ++taken[static_cast<size_t>(found)];
  }
  for (int& match : out)
    if (match >= 0 && taken[static_cast<size_t>(match)] > 1) match = -1;
  return out;
}

bool is_complete(const Matches& matches) {
  return std::none_of(matches.begin(), matches.end(), [](int match) { return match < 0; });
}

bool agrees_with(const Matches& known, const Matches& whole) {
  for (size_t i = 0; i < known.size(); ++i)
    if (known[i] >= 0 && known[i] != whole[i]) return false;
  return true;
}

Matches in_order(size_t count) {
  Matches out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<int>(i);
  return out;
}

// Between calls that are known, as many on both sides are those in order.
Matches with_gaps_filled(Matches known, size_t candidates) {
  int before = -1;
  for (const int match : known) {  // calls that changed places leave no gaps
    if (match >= 0 && match < before) return known;
    before = std::max(before, match);
  }
  if (before < 0) return known;  // nothing is known
  for (size_t i = 0; i < known.size();) {
    if (known[i] >= 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < known.size() && known[end] < 0) ++end;
    const int low = i == 0 ? 0 : known[i - 1] + 1,
              high = end == known.size() ? static_cast<int>(candidates) : known[end];
    if (high - low == static_cast<int>(end - i))
      for (size_t k = i; k < end; ++k) known[k] = low + static_cast<int>(k - i);
    i = end;
  }
  return known;
}

}  // namespace

std::vector<std::vector<std::pair<size_t, size_t>>> align_calls(const RunView& reference, const RunView& candidate,
                                                                const std::vector<NamedCalls>& names) {
  LikenessOracle likeness(reference, candidate);
  std::vector<Matches> matches;
  std::map<std::pair<size_t, size_t>, std::map<Matches, size_t>> votes;
  size_t voters = 0;
  for (const NamedCalls& calls : names) {
    check_interrupt("pairing");
    const bool single = calls.reference.size() == 1 && calls.candidate.size() == 1;
    matches.push_back(single || ++voters > kMostVoters ? Matches(calls.reference.size(), -1)
                                                       : by_content(calls, likeness));
    if (!single && is_complete(matches.back()))
      ++votes[{calls.reference.size(), calls.candidate.size()}][matches.back()];
  }
  std::vector<std::vector<std::pair<size_t, size_t>>> out;
  for (size_t n = 0; n < names.size(); ++n) {
    const NamedCalls& calls = names[n];
    Matches& own = matches[n];
    const size_t count = calls.reference.size(), candidates = calls.candidate.size();
    if (!is_complete(own)) {
      const Matches* most = nullptr;
      size_t support = 0;
      if (const auto found = votes.find({count, candidates}); found != votes.end())
        for (const auto& [whole, voices] : found->second)
          if (voices > support) most = &whole, support = voices;
      if (most && agrees_with(own, *most))
        own = *most;
      else if (count == candidates && agrees_with(own, in_order(count)))
        own = in_order(count);
      else
        own = with_gaps_filled(own, candidates);
    }
    auto& pairs = out.emplace_back();
    for (size_t i = 0; i < count; ++i)
      if (own[i] >= 0) pairs.emplace_back(calls.reference[i], calls.candidate[static_cast<size_t>(own[i])]);
  }
  return out;
}

}  // namespace lockstep
