// The steps between two tensors that a port recorded, read off the reference: each one makes a token from a token
// (linear layer, activation, norm, modulation, residual), so that a few tokens can be sent through them, with one step
// done otherwise.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "diagnose/case/family.h"

namespace lockstep {

struct Tokens {  // a sample of them, [count, width]
  int64_t width = 0;
  std::vector<double> v;
};

struct StepVariation {
  Cause cause;
  std::string yours, fix;
  double complexity = 0.8;
  std::function<Tokens(const Tokens&)> apply;
};

struct ChainStep {
  size_t record = 0;    // what it makes
  std::string formula;  // how, in words
  Tokens source;        // the reference's; taken to be the candidate's too
  std::function<Tokens(const Tokens&)> apply;
  int64_t work = 0;  // multiplications
  std::vector<StepVariation> variations;
};

class TokenChain {
 public:
  explicit TokenChain(Case& failing);
  // From the last step, which makes the bad tensor, to the first, whose source the candidate recorded or is taken to
  // have had right.
  const std::vector<ChainStep>& steps() const { return steps_; }
  // The bad tensor when step `at` is done by `apply` in place of its own way; steps before it are not needed.
  Tokens outcome(size_t at, const std::function<Tokens(const Tokens&)>& apply) const;
  int64_t work_from(size_t at) const;  // multiplications of `outcome`
  const Tokens& bad(bool candidate) const { return candidate ? bad_c_ : bad_r_; }
  size_t start() const { return start_; }  // the record that the first step starts from
  const Tokens& started_from() const { return steps_.back().source; }

 private:
  Tokens tokens_of(const Values& x) const;
  Tokens tokens_of(size_t record) const;          // the reference's
  bool fits(size_t record, int64_t width) const;  // floats, this many a token; 0: any
  std::vector<size_t> sources_of(size_t record, int64_t width) const;
  bool add_step(size_t record);
  bool add_linear(size_t record, size_t source);
  bool add_function(size_t record, size_t source);
  bool add_norm(size_t record, size_t source);
  struct Norm;
  void add_norm_variations(const std::string& module, const Norm& norm);
  void add_other_parts(const std::string& from, const std::string& right, const std::vector<double>& scale,
                       const std::vector<double>& shift);
  bool add_modulation(size_t record, size_t source);
  bool add_residual(size_t record, size_t stream, size_t branch);
  bool add_product(size_t record, size_t gate, size_t up);
  bool keep(size_t record, size_t source, std::string formula, std::function<Tokens(const Tokens&)> apply);
  std::string name_of(size_t record) const;

  Case& failing_;
  int64_t tokens_ = 0;
  std::vector<int64_t> sample_;
  Tokens bad_r_, bad_c_;
  std::vector<ChainStep> steps_;
  size_t start_ = 0;
};

double distance(const Tokens& a, const Tokens& b);  // ||a - b|| / ||b||

}  // namespace lockstep
