#include "compare/substitutes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "io/npy.h"

namespace lockstep {
namespace {

void check_permutation(const MapRule& rule) {
  std::vector<int> axes = rule.permute;
  std::sort(axes.begin(), axes.end());
  for (size_t i = 0; i < axes.size(); ++i)
    if (axes[i] != static_cast<int>(i))
      fail(Code::kBadInput, "map", fmt::format("the rule for {} takes no permutation of axes", rule.candidate),
           {.expected = "each axis once, such as [0, 3, 1, 2]"});
}

// The reference's tensor as the program would have it: what the rule does to the program's, backwards. `shape`: the
// program's, empty where it is not known yet. Nothing where that has no way back.
std::optional<Tensor> worked_back(const MapRule& rule, const Tensor& reference, const Shape& shape) {
  if (!rule.slice.empty()) return std::nullopt;  // only a part of the program's tensor is known
  check_permutation(rule);
  Tensor out = reference;
  if (rule.reshape) {
    if (shape.empty()) return std::nullopt;
    Shape before = shape;  // as the program's axes lie once they are in the reference's order
    if (!rule.permute.empty() && rule.permute.size() != shape.size()) return std::nullopt;
    for (size_t i = 0; i < rule.permute.size(); ++i) before[i] = shape[static_cast<size_t>(rule.permute[i])];
    out = out.contiguous().reshape(before);
  }
  if (rule.permute.empty()) return out;
  if (rule.permute.size() != out.shape().size()) return std::nullopt;
  std::vector<int> back(rule.permute.size());
  for (size_t i = 0; i < back.size(); ++i) back[static_cast<size_t>(rule.permute[i])] = static_cast<int>(i);
  return out.permute(back);
}

}  // namespace

Substitutes::Substitutes(const fs::path& home) : folder_(home, "substitutes-", "substitute") {
  fs::create_directory(path() / "tensors");
}

Substitutes::Substitutes(const RunView& reference, const std::vector<MapRule>& map, const fs::path& home)
    : Substitutes(home) {
  for (const RecordedTensor& record : reference.records) {
    if (!record.load) continue;
    bool mapped = false;
    for (const MapRule& rule : map) {
      MapRule backwards;
      backwards.candidate = rule.reference, backwards.reference = rule.candidate;
      const std::optional<std::string> name = mapped_name(backwards, record.key.name);
      if (!name) continue;
      mapped = true;
      TensorKey key = record.key;
      key.name = *name;
      if (const std::optional<Tensor> value = worked_back(rule, record.load(), {}))
        add(key, record.role, *value);
      else
        notes_.push_back(fmt::format("{} is not replaced: the map's rule for it has no way back", key.name));
    }
    if (!mapped) add(record.key, record.role, record.load());
  }
  finish(reference);
}

Substitutes::Substitutes(const RunView& reference, const RunView& candidate, const std::vector<MapRule>& map,
                         const fs::path& home)
    : Substitutes(home) {
  for (const Pair& pair : pair_runs(reference, candidate, map, "").pairs) {
    const RecordedTensor &r = reference.records[pair.reference], &c = candidate.records[pair.candidate];
    if (!r.load) continue;
    std::optional<Tensor> value = r.load();
    if (pair.rule >= 0) value = worked_back(map[static_cast<size_t>(pair.rule)], *value, c.shape);
    if (value)
      add(c.key, c.role, *value);
    else
      notes_.push_back(fmt::format("{} is not replaced: the map's rule for it has no way back", c.key.name));
  }
  finish(reference);
}

void Substitutes::add(const TensorKey& key, Role role, const Tensor& tensor) {
  Record record;
  record.seq = static_cast<int64_t>(count_);
  record.key = key, record.role = role;
  record.dtype = tensor.dtype(), record.dtype_text = dtype_name(tensor.dtype());
  record.shape = tensor.shape();
  record.file = fmt::format("tensors/{}.npy", count_++);
  write_npy(path() / record.file, tensor);
  lines_ += line_from_record(record) + "\n";
}

void Substitutes::finish(const RunView& reference) {
  write_atomically(path() / "records.jsonl", lines_);
  const Json header{{"format", "lockstep-run"}, {"version", 1}, {"id", reference.id}, {"status", "finished"}};
  write_atomically(path() / "run.json", header.dump(1) + "\n");
}

}  // namespace lockstep
