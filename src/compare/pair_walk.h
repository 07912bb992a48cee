// One walk over the pairs in execution order: the error of each, what rounding and the stages before may make of it,
// and whether it is beyond that.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "compare/comparison.h"
#include "diagnose/case/case.h"
#include "diagnose/search/budget.h"

namespace lockstep {

class PairWalk {
 public:
  PairWalk(const RunView& reference, const RunView& candidate, const Structure& structure,
           const CompareOptions& options, Comparison& out);

  void visit(const Pair& pair);

  size_t result_of(size_t record) const { return result_of_[record]; }
  bool is_good(size_t record) const;
  double unit_of(const RecordedTensor& r, const RecordedTensor& c) const;
  // A cause explains what the stage makes of its inputs. Only a few are asked.
  bool is_a_mistake(const PairResult& result);

 private:
  void remember(size_t record, PairResult& result);
  // False: said in the pair's note, and counted. A file that cannot be read at all leaves the pair unread.
  bool is_intact(const RecordedTensor& tensor, const char* side, PairResult& result);
  // False when there is nothing to measure.
  bool measure(const RecordedTensor& r, const RecordedTensor& c, double unit, PairResult& result);
  // Statistics cannot show that two tensors agree, but they can show that they do not.
  void judge_by_statistics(double least, double unit, PairResult& result);
  FloorWalk::Limits limits_for(size_t record, const RecordedTensor& r, const RecordedTensor& c, double unit,
                               PairResult& result);
  bool only_amplifies(const Pair& pair, double unit, const FloorWalk::Limits& limits, PairResult& result);
  bool adds_to_the_noise(const Pair& pair, double unit, PairResult& result);
  bool differs_on_the_same_inputs(const Pair& pair, double unit, PairResult& result);
  Case case_of(const Pair& pair, double unit, const PairResult& result);
  // The most specific glob decides: "*" stands for what nothing else names.
  std::optional<double> tolerance_of(const std::string& name) const;
  bool is_bad(const RecordedTensor& r, PairResult& result, FloorWalk::Limits limits, double unit, size_t record);

  const RunView& reference_;
  const RunView& candidate_;
  const Structure& structure_;
  const CompareOptions& options_;
  Comparison& out_;
  RunPrecision reference_precision_, candidate_precision_;
  FloorWalk walk_;
  std::map<std::string, size_t> latest_with_;  // checksum of the reference's values → the latest record that had them
  int confirmations_ = 0, amplified_ = 0, asked_ = 0;
  Budget local_budget_;
  std::set<std::tuple<std::string, Role, int, bool>> judged_;  // modules once, stages of the pipeline at each step
  std::set<std::string> asked_of_;  // places of code whose results on the same inputs were looked at
  std::vector<size_t> result_of_;
  std::map<size_t, size_t> noise_of_;
};

}  // namespace lockstep
