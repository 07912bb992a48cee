// Below pairing: where a side was recorded on several ranks, the shards of each tensor become the one tensor that the
// other side has. How, is found by content, else by shapes; a map file may say it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "compare/pairing.h"

namespace lockstep {

// Names of one side, with `*` and `#` as in a map, and how their shards are put together ("concatenate 1").
struct RankRules {
  std::vector<std::pair<std::string, std::string>> reference, candidate;
};
// {"ranks": {"candidate": {"layers.#.mlp.up": "concatenate 2"}}} of a map file; Error{kBadInput}.
RankRules read_rank_rules(const fs::path& file);

struct RankAssembly {
  std::vector<std::string> notes;  // what was done, in words
  Json found = Json::object();     // the section "ranks" of a map file, as found and used; empty: no ranks
};

bool has_ranks(const RunView& run);
// Changes both views: afterwards no record has a tag `rank`.
RankAssembly put_ranks_together(RunView& reference, RunView& candidate, const std::vector<MapRule>& map,
                                const RankRules& rules);

}  // namespace lockstep
