// Compares two runs: pairs, errors against noise floors, the first divergence and its cause.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compare/finding.h"
#include "compare/growth.h"
#include "compare/noise_floor.h"
#include "compare/pairing.h"
#include "compare/run_view.h"
#include "compare/weight_source.h"

namespace lockstep {

enum class PairState {
  kGood,          // equal up to the noise floor
  kBad,           // beyond it
  kLayout,        // equal once the axes are put in order; reported, never silently forgiven
  kIncomparable,  // shapes that no rearrangement brings together
  kUnread         // values of one side were not kept
};
std::string_view state_name(PairState state);

struct PairResult {
  Pair pair;
  PairState state = PairState::kGood;
  PairError error;
  double noise_floor = 0;           // of the relative error
  double in_floors = 0;             // relative error / noise floor
  std::string note;                 // layout, pairing, what was not kept
  bool isolated = false;            // bad, but nothing after it is
  double layout_tolerance = 0;      // what another layout was looked for with
  std::optional<double> tolerance;  // of the tolerance file, in place of the floor
};

struct Divergence {
  size_t result = 0;   // index into Comparison::results
  std::string stage;   // the module, or the pipeline stage
  std::string kind;    // "module", "glue", "capture", "weights"
  std::string parent;  // whose code to read when the kind is glue
  std::string region;
  std::vector<std::string> good_inputs;       // the right tensors it was made from
  bool input_unknown = false;                 // a module whose input the candidate did not record
  std::vector<std::string> worked_back_from;  // the layers whose input was not recorded and follows from their outputs
  std::string hint;                           // what to record to know more
};

struct StagePoint {  // one point of the error curve
  std::string name;
  int step = -1;
  double error = 0, floor = 0;
};

struct ImagePair {
  std::string name;
  double psnr = 0, ssim = 0;
  size_t result = 0;
  size_t item = 0;  // of the batch
};

struct CompareOptions {
  std::vector<MapRule> map;
  std::map<std::string, double> tolerances;  // glob → largest relative error, in place of the noise floor
  std::string only;                          // glob of names
  const RunView* noise = nullptr;            // a second reference: its errors are the floor
  std::shared_ptr<const WeightSource> weights_reference, weights_candidate;
  // Says what tokens were, where the model's tokenizer is known.
  std::function<std::string(const std::vector<int32_t>&)> text_of_tokens;
  bool diagnose = true;
  std::vector<std::string> notes;  // what was done to the runs before: said with the result
};

struct Comparison {
  std::string verdict;  // "match", "mismatch", "nothing_compared"
  size_t compared = 0;
  std::vector<PairResult> results;  // in the reference's execution order
  std::vector<size_t> only_reference, only_candidate;
  std::vector<MapRule> map;  // that the pairs' rules are of
  std::optional<Divergence> first;
  std::vector<Finding> causes;     // at most three, best first
  std::vector<std::string> notes;  // layouts, other independent differences, what was not compared and why
  std::vector<StagePoint> curve;
  Growth growth;
  std::vector<ImagePair> images;
  std::string floor_source;
  double floor_factor = kFloorFactor;  // an error this many floors high is no rounding
};

Comparison compare_runs(const RunView& reference, const RunView& candidate, const CompareOptions& options);

Json json_from(const Comparison& comparison, const RunView& reference, const RunView& candidate);
std::string text_from(const Comparison& comparison, const RunView& reference, const RunView& candidate, bool all,
                      bool color);

}  // namespace lockstep
