// Compares two runs: pairs, errors against noise floors, the first divergence and its cause.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "compare/growth.h"
#include "compare/map_proposal.h"
#include "compare/noise_floor.h"
#include "compare/pairing.h"
#include "diagnose/case/finding.h"
#include "diagnose/case/run_view.h"
#include "diagnose/case/weight_source.h"
#include "diagnose/replay/replay_search.h"

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
  bool made_here = false;           // the stage itself makes it: its inputs are better
  bool harmless = false;            // a little beyond its limit, and everything that is made from it agrees
  std::optional<double> fed;        // error of the worst recorded input of its call
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
  // Where the candidate recorded a tensor here and there: the mistake is in one of these stages of the reference, which
  // lie between tensors that agree (or that nothing is known of) and this one.
  std::vector<std::string> stages_between, starts;
  std::string hint;  // what to record to know more
};

struct StagePoint {  // one point of the error curve
  std::string name;
  int step = -1;
  double error = 0, floor = 0;
  size_t result = 0;  // index into Comparison::results
};

struct ImagePair {
  std::string name;
  double psnr = 0, ssim = 0;
  size_t result = 0;
  size_t item = 0;  // of the batch
};

// How much of the reference was compared.
struct Coverage {
  size_t paired = 0, of = 0;  // tensors of the reference; inputs count where the candidate has any
  std::string failure;        // how the candidate's program ended, where it did not end well
  size_t left_out = 0;        // tensors that the candidate names by hand and nobody is sure whose they are
  bool is_low = false;        // less than half
  bool is_partial = false;    // too little for a match: the program failed, or most of what it does was not compared
  double share() const { return of ? static_cast<double>(paired) / static_cast<double>(of) : 0; }
};

// What a search for the first bad tensor that the candidate names by hand has found.
struct ReplayedTensor {
  size_t candidate = SIZE_MAX;
  Replayed search;
};

struct CompareOptions {
  std::vector<MapRule> map;                  // given: nothing else is looked for
  bool find_map = true;                      // where names differ and no map is given
  std::optional<FoundMap> found;             // one that was found already
  ReplayedTensor replayed;                   // ... with this
  std::map<std::string, double> tolerances;  // glob → largest relative error, in place of the noise floor
  std::string only;                          // glob of names
  const RunView* noise = nullptr;            // a second reference: its errors are the floor
  std::shared_ptr<const WeightSource> weights_reference, weights_candidate;
  // Says what tokens were, where the model's tokenizer is known.
  std::function<std::string(const std::vector<int32_t>&)> text_of_tokens;
  bool diagnose = true;
  bool partial = false;            // a match of what there is counts as a match
  std::vector<std::string> notes;  // what was done to the runs before: said with the result
};

struct Comparison {
  // "match", "mismatch", "nothing_compared"; "partial": what was compared agrees, and it was too little, or not
  // everything could be read
  std::string verdict;
  Coverage coverage;
  size_t compared = 0;
  int64_t damaged = 0;              // tensors whose file does not hold the values of their capture, or cannot be read
  std::vector<PairResult> results;  // in the reference's execution order
  std::vector<size_t> only_reference, only_candidate;
  std::vector<MapRule> map;  // that the pairs' rules are of
  FoundMap found;            // what of it was found, and what was left out as unsure
  std::optional<Divergence> first;
  std::vector<Finding> causes;     // at most three, best first
  std::vector<std::string> notes;  // layouts, other independent differences, what was not compared and why
  std::vector<StagePoint> curve;
  Growth growth;
  std::vector<ImagePair> images;
  std::string floor_source;
  double floor_factor = kFloorFactor;  // an error this many floors high is no rounding
};

int64_t dropped_records(const RunView& run);  // lines that are torn, malformed or point out of the run

Comparison compare_runs(const RunView& reference, const RunView& candidate, const CompareOptions& options);

Json json_from(const Comparison& comparison, const RunView& reference, const RunView& candidate);
Text text_from(const Comparison& comparison, const RunView& reference, const RunView& candidate, bool all, bool color);
// Its beginning: the verdict, the first divergence and its causes.
Text verdict_text(const Comparison& comparison, const RunView& reference, const RunView& candidate, bool color);

}  // namespace lockstep
