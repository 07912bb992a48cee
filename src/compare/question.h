// One comparison as it is asked on every face: the terminal, REST, MCP, and live beside a run that is being made. The
// same question has the same answer, because all of them come through here.
#pragma once
#include <string>
#include <vector>

#include "base/error.h"
#include "compare/comparison.h"
#include "compare/map_proposal.h"
#include "compare/rank_assembly.h"

namespace lockstep {

struct CompareQuestion {
  std::string reference, candidate;  // an id, latest:NAME, or a folder
  std::string only;                  // compare these names alone (glob)
  std::string map, tolerances;       // JSON files
  bool propose = false;              // pair by content and order what neither names nor the map pair
  bool partial = false;              // a match of what there is counts as a match
  std::string noise;                 // a second reference run
  // Checkpoints: of both sides, of the reference and of the candidate where they differ.
  std::string weights, weights_a, weights_b;
};

struct CompareAnswer {
  RunView reference, candidate;
  std::vector<ProposedRule> proposal;  // in use, beside the question's map
  RankAssembly ranks;                  // how the shards of several processes were put together
  Comparison comparison;
  Detail nothing_compared;  // why not, and what to do about it; empty where something was
};

// Error{kBadInput, kNotFound, kCorrupt} where a run or a file cannot be read. `home`: where runs are looked for.
CompareAnswer answer_to(const CompareQuestion& question, const fs::path& home);
// The same for runs that are open already: `reference` and `candidate` of the question are not looked at.
CompareAnswer answer_to(const CompareQuestion& question, const fs::path& home, RunView reference, RunView candidate);

// The map that `compare --map` reads: names that differ, and how ranks are put together.
Json map_from(const CompareAnswer& answer);
Json json_from(const CompareAnswer& answer);  // docs/schemas/compare.json

}  // namespace lockstep
