// The module tree behind the record names: which module a record belongs to, who its parent is, what ran before it.
#pragma once
#include <map>
#include <set>
#include <string>
#include <vector>

#include "diagnose/case/run_view.h"

namespace lockstep {

struct Site {
  std::string module;  // "transformer.transformer_blocks.0.attn"; empty for stages of the pipeline
  std::string slot;    // which of several outputs or inputs: "0", "hidden_states"; empty when there is one
};

class Structure {
 public:
  explicit Structure(const RunView& run);

  const Site& site(size_t record) const { return sites_[record]; }
  bool is_container(const std::string& module) const { return containers_.contains(module); }
  bool is_module(const std::string& module) const { return modules_.contains(module); }
  // Records of that role of the same call (same step and tags, nearest in time to record `near`), in order.
  std::vector<size_t> records_of(const std::string& module, Role role, size_t near) const;
  // Records of the same call that ran strictly inside `module` before record `before`, latest first.
  std::vector<size_t> records_inside(const std::string& module, size_t before) const;
  // Whose code calls it: lists of modules have none of their own, so the next module above that is one.
  std::string caller_of(const std::string& module) const;

 private:
  const RunView& run_;
  std::vector<Site> sites_;
  std::set<std::string> modules_, containers_;
  std::map<std::string, std::vector<size_t>> of_module_;
};

bool same_call(const RunView& run, size_t a, size_t b);  // step and tags of the records agree
std::string parent_of(const std::string& name);          // "" at the root
std::string leaf_of(const std::string& name);
bool is_inside(const std::string& name, const std::string& module);  // strictly below

// One tensor at two places: handed on, or given to the next.
bool is_same_tensor(const RunView& run, size_t a, size_t b);

// The earliest record of the reference with the very same values: `attn` hands on what `attn.to_out.0` gave.
size_t first_with_these_values(const RunView& run, size_t record);
// The latest before this one; the record itself where there is none.
size_t last_with_these_values(const RunView& run, size_t record);

}  // namespace lockstep
