// A family: a formula with a few parameters that must explain the reference's tensor before it may speak about the
// candidate's. Adding one is one file here, one line in table.cpp, one planted fault and one clean pair.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compare/finding.h"
#include "compare/run_view.h"
#include "compare/structure.h"
#include "compare/values.h"
#include "compare/weight_source.h"

namespace lockstep {

enum class Relation { kOwnInput, kChild, kSibling, kParentInput, kEarlier };

// A good tensor near the bad one. Values are read when first used and kept for the other families.
struct Item {
  size_t reference = 0, candidate = 0;  // records
  std::string name;
  Role role = Role::kOutput;
  Relation relation = Relation::kEarlier;
  Shape shape;
  bool assumed = false;       // the candidate did not record it: the reference's values stand for its own
  std::string label() const;  // "input of X" or "X"
};

class Case {
 public:
  Case(const RunView& reference, const RunView& candidate, const Structure& structure, size_t reference_record,
       size_t candidate_record);

  std::string name;    // of the bad record
  std::string module;  // it belongs to; empty for a stage of the pipeline
  Role role = Role::kOutput;
  int step = -1;
  bool is_leaf = false;
  Values r, c;              // the bad pair, same shape
  double error = 0;         // relative
  double tolerance = 2e-5;  // a fit that leaves no more than this explains its side
  double floor = 0;         // noise the candidate's tensor bears anyway, inherited and its own
  bool isolated = false;
  std::vector<Item> items;  // nearest first
  std::shared_ptr<const WeightSource> weights_r, weights_c;
  std::function<std::string(const std::vector<int32_t>&)> text_of_tokens;  // empty: no tokenizer is known

  const Values& reference_of(const Item& item);
  const Values& candidate_of(const Item& item);
  const RunView& reference_run() const { return reference_; }
  const RunView& candidate_run() const { return candidate_; }
  const Structure& structure() const { return structure_; }
  size_t reference_record() const { return reference_record_; }
  size_t candidate_record() const { return candidate_record_; }
  // Values of any records, sharing the cache.
  const Values& load_reference(size_t record);
  const Values& load_candidate(size_t record);
  // The candidate's record that answers a record of the reference; SIZE_MAX when there is none.
  std::function<size_t(size_t)> partner;

  std::optional<Values> weight_r(const std::string& weight_name) const;
  // The candidate's own weights where given, else the reference's: the same checkpoint is the usual case.
  std::optional<Values> weight_c(const std::string& weight_name) const;
  std::string where() const;
  // Another pair in this one's place: a part of it, or an operand worked back from it. What was loaded is shared.
  Case with_pair(Values reference, Values candidate) const;

  // A family found the formula that makes the reference's tensor; applied to the candidate's own inputs it leaves this.
  // Where several formulas fit, the kindest counts. True: that was the question, the search may end.
  bool note_local(double with_reference_formula) {
    local_error = std::min(local_error.value_or(INFINITY), with_reference_formula);
    return only_local;
  }
  bool only_local = false;
  std::optional<double> local_error;  // what this stage itself has added; nothing when no formula is known

  bool explains(double residual) const { return residual <= tolerance; }
  // The candidate may be left with a little more: its other errors are its own. Noise is no error, as long as what is
  // explained stands far above it.
  bool explains_candidate(double residual) const {
    const double most =
        std::min(error, 1.0);  // of the tensor itself: of a hundredfold error a fiftieth explains nothing
    return residual <= std::max({2 * tolerance, 0.02 * most, std::min(floor, 0.15 * most)});
  }
  // `other` parameters fit the candidate clearly better than the reference's own do.
  bool is_better(double residual, double with_reference_parameters) const {
    return residual < 0.35 * with_reference_parameters;
  }

 private:
  const RunView& reference_;
  const RunView& candidate_;
  const Structure& structure_;
  size_t reference_record_, candidate_record_;
  using Loaded = std::map<size_t, Values>;
  std::shared_ptr<Loaded> loaded_r_ = std::make_shared<Loaded>(), loaded_c_ = std::make_shared<Loaded>();
};

using Findings = std::vector<Finding>;

struct Family {
  const char* name;
  void (*search)(Case& failing, Findings& out);
  // Does the formula that explains the reference give the candidate's tensor too, from the candidate's own inputs? Then
  // the stage is right, and what is wrong with its result was wrong with its inputs. Null: the family cannot tell.
  bool (*confirm)(Case& failing) = nullptr;
  bool recomputes = false;  // calls note_local: its formula makes the tensor from inputs
  bool pair_only = false;   // looks at the two tensors alone, so that it also explains parts and operands of a pair
};

const std::vector<Family>& families();
// The families that look at the two tensors alone.
Findings explain_pair(Case& pair);

// One function per file of this folder.
bool confirm_activation(Case& failing);
bool confirm_linear(Case& failing);
bool confirm_norm(Case& failing);
bool confirm_timestep(Case& failing);
void search_activation(Case& failing, Findings& out);
void search_additional_stage(Case& failing, Findings& out);
void search_affine(Case& failing, Findings& out);
void search_attention(Case& failing, Findings& out);
void search_capture(Case& failing, Findings& out);
void search_chain(Case& failing, Findings& out);
void search_channelwise(Case& failing, Findings& out);
void search_conditioning(Case& failing, Findings& out);
void search_convolution(Case& failing, Findings& out);
void search_elementwise(Case& failing, Findings& out);
void search_embedding(Case& failing, Findings& out);
void search_garbage(Case& failing, Findings& out);
void search_guidance(Case& failing, Findings& out);
void search_latents(Case& failing, Findings& out);
void search_layout(Case& failing, Findings& out);
void search_linear(Case& failing, Findings& out);
void search_norm(Case& failing, Findings& out);
void search_norm_between(Case& failing, Findings& out);
void search_parts(Case& failing, Findings& out);
void search_picture(Case& failing, Findings& out);
void search_precision(Case& failing, Findings& out);
void search_resample(Case& failing, Findings& out);
void search_rotary_table(Case& failing, Findings& out);
void search_rotation(Case& failing, Findings& out);
void search_scheduler(Case& failing, Findings& out);
void search_timestep(Case& failing, Findings& out);
void search_space_norm(Case& failing, Findings& out);
void search_tokens(Case& failing, Findings& out);

}  // namespace lockstep
