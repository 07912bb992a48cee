// What the reference computes between the last tensors that the candidate recorded and the bad one: a graph of stages,
// read off the reference's record and replayed with some of them done otherwise.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "diagnose/case/family.h"
#include "diagnose/replay/stage.h"

namespace lockstep {

// The records and weights that stages are read from. Tensors of a large model are read at a few tokens: then only
// stages that make a token from a token can be replayed.
class StageSources {
 public:
  explicit StageSources(Case& failing);

  Case& failing() const { return failing_; }
  const RunView& run() const { return failing_.reference_run(); }
  bool is_sampled() const { return !sample_.empty(); }
  const Flat& values(size_t record);                              // of the reference
  const Flat& bad() const { return bad_; }                        // the candidate's bad tensor
  std::shared_ptr<const Values> weight(const std::string& name);  // null: there is none
  int64_t size(size_t record) const;                              // 0: not a tensor of floats whose values were kept
  int64_t width(size_t record) const { return run().records[record].shape.back(); }
  size_t origin(size_t record) const;  // where a tensor that was handed on was made
  std::string name(size_t record) const;
  // What a module was given; for what lies between modules, everything made before it in the same call, latest first.
  std::vector<size_t> near(size_t record, int64_t size) const;
  // Vectors of that many channels, or several of them in a row, made before in the same call.
  std::vector<size_t> vectors(size_t record, int64_t channels) const;
  bool explains(double misfit) const { return misfit <= tolerance_; }
  void set_tolerance(double tolerance) { tolerance_ = tolerance; }

 private:
  bool has_tokens(const RecordedTensor& tensor) const;
  bool is_made_at(size_t record) const;

  Case& failing_;
  double tolerance_ = kFit;
  int64_t tokens_ = 0;           // of the bad tensor
  std::vector<int64_t> sample_;  // those that are read; empty: whole tensors are
  Flat bad_;
  std::map<size_t, Flat> values_;
  std::map<std::string, std::shared_ptr<const Values>> weights_;
};

// Each looks at one record and says how it is made, where it is made in that way.
std::optional<Stage> find_linear(StageSources& in, size_t record);
std::optional<Stage> find_embedding(StageSources& in, size_t record);
std::optional<Stage> find_function(StageSources& in, size_t record);
std::optional<Stage> find_norm(StageSources& in, size_t record);
std::optional<Stage> find_modulation(StageSources& in, size_t record);
std::optional<Stage> find_sum(StageSources& in, size_t record);
std::optional<Stage> find_product(StageSources& in, size_t record);
std::optional<Stage> find_attention(StageSources& in, size_t record);
std::optional<Stage> find_part(StageSources& in, size_t record);
std::optional<Stage> find_time_features(StageSources& in, size_t record);
std::optional<Stage> find_guidance(StageSources& in, size_t record);
// A tensor of which nothing is known but its values, and which the candidate did not record: it may lie otherwise.
Stage given_stage(StageSources& in, size_t record);
// A tensor that both recorded and that agrees: it may be scaled on its way to those that use it.
Stage handed_stage(StageSources& in, size_t record);

// A record that is a function of each element of another: which of `element_functions`, of what.
struct FunctionOf {
  size_t source, function;
};
std::optional<FunctionOf> function_of(StageSources& in, size_t record);

class StageGraph {
 public:
  // Up to these records; each is made anew, whoever recorded it.
  StageGraph(Case& failing, const std::vector<size_t>& targets);

  const std::vector<Stage>& stages() const { return stages_; }  // in the order in which they run
  const std::vector<size_t>& leaves() const { return leaves_; }
  std::vector<size_t> targets() const;              // those that can be made
  std::set<size_t> makers_of(size_t record) const;  // it, and the records that it is made from
  StageSources& sources() { return in_; }

  struct Change {
    size_t stage = 0;
    const std::function<Flat(Sources)>* apply = nullptr;
  };
  // What changes when these stages are done otherwise: record → values. Empty where that cannot be done.
  std::map<size_t, Flat> replay(const std::vector<Change>& changes);
  int64_t work_of(const std::vector<size_t>& changed) const;  // multiplications of such a replay

 private:
  bool is_known(size_t record) const;

  StageSources in_;
  std::set<size_t> targets_;
  std::vector<Stage> stages_;
  std::vector<size_t> leaves_;
};

}  // namespace lockstep
