// One side of a comparison whose tensors lie in shards on several ranks: which shards belong to one tensor.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "compare/pairing.h"
#include "compare/shards.h"

namespace lockstep {

// One tensor as the model means it: what each rank has of it.
struct Logical {
  TensorKey key;  // without the rank
  Role role = Role::kOutput;
  std::vector<size_t> records;  // by rank
  std::vector<int> ranks;
};
using CallKey = std::tuple<std::string, bool, int, int, Tags>;  // roles of a program's own are one
using NameKey = std::pair<std::string, bool>;

struct Choice {
  Assembly way;
  bool by_values = false;
};

class RankedSide {
 public:
  using Rules = std::vector<std::pair<std::string, std::string>>;  // names, and what a map file says of them
  // `map`: brings the names into the other side's words; null: they are.
  RankedSide(RunView& run, const std::vector<MapRule>* map, const Rules& rules);

  size_t partner_of(const RankedSide& other, size_t i) const;  // by name; SIZE_MAX: none
  bool is_split(size_t i) const { return all[i].records.size() > 1; }
  bool can_load(size_t i) const;
  bool is_identical(size_t i) const;  // on all ranks, bit for bit
  std::vector<Shape> shapes(size_t i) const;
  std::vector<Tensor> load(size_t i) const;
  std::vector<Assembly> ways(size_t i, bool nested) const;
  std::optional<Assembly> told(size_t i) const;  // by a map file
  // As a map file names it: inputs with "input " before.
  std::string label(size_t i) const { return label_of(name_key(i)); }
  static std::string label_of(const NameKey& key) { return (key.second ? "input " : "") + key.first; }
  NameKey name_key(size_t i) const { return {all[i].key.name, all[i].role == Role::kInput}; }
  const RunView& run() const { return run_; }

  std::vector<Logical> all;
  std::vector<std::string> names;  // in the reference's words
  std::map<CallKey, size_t> by_call;
  std::map<NameKey, std::vector<size_t>> by_name;
  std::map<NameKey, Choice> chosen;  // by a side's own name

 private:
  const RunView& run_;
  const Rules& rules_;
};

std::string with_numbers_open(const std::string& name);  // "layers.#.up"

}  // namespace lockstep
