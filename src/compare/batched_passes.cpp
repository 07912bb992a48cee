#include "compare/batched_passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "measure/values.h"

namespace lockstep {
namespace {

constexpr int kMostLooked = 64;    // tensors that are read to find out which half is which
constexpr double kDecisive = 0.5;  // of the error the other way round

using CallAt = std::tuple<std::string, bool, int, int>;  // name, input or not, step, hit
struct Passes {
  const RecordedTensor *cond = nullptr, *uncond = nullptr;
};

std::string pass_of(const RecordedTensor& record) {
  for (const auto& [key, value] : record.key.tags)
    if (key == "pass") return value;
  return "";
}

template <typename Name>
CallAt call_of(const RecordedTensor& record, Name&& name) {
  return {name(record), record.role == Role::kInput, record.key.step, record.key.hit};
}

bool holds_both(const RecordedTensor& batch, const Passes& passes) {
  const Shape &a = passes.cond->shape, &b = passes.uncond->shape, &both = batch.shape;
  return !both.empty() && a.size() == both.size() && b.size() == both.size() && a[0] == b[0] && both[0] == 2 * a[0];
}

// How far the halves of a batch are from the passes, in this order and in the other.
std::pair<double, double> errors_of(const RecordedTensor& batch, const Passes& passes) {
  const Tensor all = batch.load();
  const int64_t half = batch.shape[0] / 2;
  const Values first = values_from(all.slice(0, 0, half)), second = values_from(all.slice(0, half, 2 * half));
  const Values cond = values_from(passes.cond->load()), uncond = values_from(passes.uncond->load());
  return {relative_error(first.v, cond.v) + relative_error(second.v, uncond.v),
          relative_error(first.v, uncond.v) + relative_error(second.v, cond.v)};
}

RecordedTensor half_of(const RecordedTensor& batch, bool second, const char* pass) {
  RecordedTensor out = batch;
  const int64_t half = batch.shape[0] / 2;
  out.shape[0] = half;
  out.key.tags.emplace_back("pass", pass);
  std::sort(out.key.tags.begin(), out.key.tags.end());
  out.checksum.clear(), out.stats.reset(), out.shards.reset();  // those of the whole
  out.load = [load = batch.load, second, half] { return load().slice(0, second ? half : 0, second ? 2 * half : half); };
  return out;
}

// The batches of `one`, by their index, whose passes `other` has by themselves.
template <typename NameOfOne, typename NameOfOther>
std::map<size_t, Passes> batches_of(const RunView& one, const RunView& other, NameOfOne&& name_of_one,
                                    NameOfOther&& name_of_other) {
  std::map<CallAt, Passes> passes;
  for (const RecordedTensor& record : other.records) {
    const std::string pass = pass_of(record);
    if (pass != "cond" && pass != "uncond") continue;
    Passes& of_call = passes[call_of(record, name_of_other)];
    (pass == "cond" ? of_call.cond : of_call.uncond) = &record;
  }
  std::map<size_t, Passes> out;
  for (size_t i = 0; i < one.records.size() && !passes.empty(); ++i) {
    const RecordedTensor& record = one.records[i];
    if (!pass_of(record).empty() || !record.load) continue;
    const auto found = passes.find(call_of(record, name_of_one));
    if (found == passes.end() || !found->second.cond || !found->second.uncond) continue;
    if (holds_both(record, found->second)) out[i] = found->second;
  }
  return out;
}

std::string take_apart(RunView& one, const std::map<size_t, Passes>& batches, const char* whose) {
  bool unconditional_first = true, decided = false;  // the usual order, where the values do not tell
  int looked = 0;
  for (const auto& [i, passes] : batches) {
    const RecordedTensor& batch = one.records[i];
    const bool same_size = passes.cond->shape == passes.uncond->shape &&
                           std::equal(batch.shape.begin() + 1, batch.shape.end(), passes.cond->shape.begin() + 1);
    if (!same_size || !passes.cond->load || !passes.uncond->load) continue;
    if (++looked > kMostLooked) break;
    const auto [as_it_is, turned] = errors_of(batch, passes);
    decided = std::min(as_it_is, turned) < kDecisive * std::max(as_it_is, turned);
    unconditional_first = decided ? turned < as_it_is : unconditional_first;
    if (decided) break;
  }
  std::vector<RecordedTensor> records;
  for (size_t i = 0; i < one.records.size(); ++i) {
    if (!batches.contains(i)) {
      records.push_back(std::move(one.records[i]));
      continue;
    }
    records.push_back(half_of(one.records[i], unconditional_first, "cond"));
    records.push_back(half_of(one.records[i], !unconditional_first, "uncond"));
  }
  one.records = std::move(records);
  return fmt::format("{} both passes of guidance in one batch ({}{}): {} tensors are taken apart", whose,
                     unconditional_first ? "unconditional first" : "conditional first",
                     decided ? ", by their values" : ", as is usual: the values do not tell", batches.size());
}

}  // namespace

std::string take_passes_apart(RunView& reference, RunView& candidate, const std::vector<MapRule>& map) {
  const auto own = [](const RecordedTensor& record) { return record.key.name; };
  const auto mapped = [&](const RecordedTensor& record) {
    for (const MapRule& rule : map)
      if (auto name = mapped_name(rule, record.key.name)) return *name;
    return record.key.name;
  };
  if (const auto batches = batches_of(candidate, reference, mapped, own); !batches.empty())
    return take_apart(candidate, batches, "yours runs");
  if (const auto batches = batches_of(reference, candidate, own, mapped); !batches.empty())
    return take_apart(reference, batches, "the reference runs");
  return "";
}

}  // namespace lockstep
