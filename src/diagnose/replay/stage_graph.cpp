#include "diagnose/replay/stage_graph.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/interrupt.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr size_t kMostStages = 320, kMostSampledStages = 24, kMostNear = 24, kMostBefore = 512;
constexpr int64_t kMostElements = int64_t{1} << 21;  // of a tensor that is replayed as a whole
constexpr int64_t kMostTokens = 12;                  // of one that is not
constexpr int64_t kMostWeight = int64_t{1} << 27;

}  // namespace

std::string place_of_code(const std::string& name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const bool digit = name[i] >= '0' && name[i] <= '9', begins = i == 0 || name[i - 1] == '.';
    if (!digit || !(begins || (!out.empty() && out.back() == '#')))
      out += name[i];
    else if (out.empty() || out.back() != '#')
      out += '#';
  }
  return out;
}

double flat_distance(const Flat& made, const Flat& recorded) {
  if (made.size() != recorded.size() || made.empty()) return INFINITY;
  Residual apart;
  for (size_t i = 0; i < made.size(); ++i) apart.add(made[i], recorded[i]);
  return apart.relative();
}

StageSources::StageSources(Case& failing) : failing_(failing), tokens_(failing.c.rows()), bad_(failing.c.v) {
  if (tokens_ <= kMostTokens) return;
  // Large is what the bad tensor is made from: it may itself be the narrow end of a model.
  bool large = failing.c.size() > kMostElements;
  for (size_t i = failing.reference_record(), seen = 0; i-- > 0 && seen < kMostBefore && !large; ++seen) {
    const Shape& shape = run().records[i].shape;
    const int64_t size = checked_numel(shape);
    large =
        size > kMostElements && size / shape.back() % tokens_ == 0 && same_call(run(), i, failing.reference_record());
  }
  if (!large) return;
  sample_ = sample_indices(tokens_, kMostTokens);
  bad_ = take_rows(failing.c, sample_).v;
}

bool StageSources::has_tokens(const RecordedTensor& tensor) const {
  const int64_t rows = checked_numel(tensor.shape) / std::max<int64_t>(1, tensor.shape.back());
  return is_sampled() && rows >= tokens_ && rows % tokens_ == 0;
}

const Flat& StageSources::values(size_t record) {
  const auto [found, is_new] = values_.try_emplace(record);
  const RecordedTensor& tensor = run().records[record];
  if (!is_new || !tensor.load) return found->second;
  if (!has_tokens(tensor)) {
    found->second = values_from(tensor.load()).v;
    return found->second;
  }
  const Tensor whole = tensor.load().contiguous();
  const Tensor tokens = whole.reshape({tokens_, whole.numel() / tokens_});
  for (const int64_t token : sample_) {
    const Values row = values_from(tokens.slice(0, token, token + 1));
    found->second.insert(found->second.end(), row.v.begin(), row.v.end());
  }
  return found->second;
}

std::shared_ptr<const Values> StageSources::weight(const std::string& name) {
  const auto [found, is_new] = weights_.try_emplace(name);
  const auto& source = failing_.weights_c ? failing_.weights_c : failing_.weights_r;
  if (is_new && source)
    if (const auto known = source->shapes().find(name);
        known != source->shapes().end() && checked_numel(known->second) <= kMostWeight)
      if (auto values = source->find(name)) found->second = std::make_shared<const Values>(std::move(*values));
  return found->second;
}

int64_t StageSources::size(size_t record) const {
  const RecordedTensor& tensor = run().records[record];
  if (!tensor.load || !is_floating(tensor.dtype) || tensor.shape.empty()) return 0;
  const int64_t size = checked_numel(tensor.shape);
  if (has_tokens(tensor)) return size / tokens_ * static_cast<int64_t>(sample_.size());
  return size <= kMostElements ? size : 0;
}

// A module that was given something else made these values itself, although another may have made the same before: two
// of a block may start with the same activation of one tensor, and a port may leave out one of them.
bool StageSources::is_made_at(size_t record) const {
  const Structure& structure = failing_.structure();
  const std::string& module = structure.site(record).module;
  if (run().records[record].role != Role::kOutput || module.empty() || structure.is_container(module)) return false;
  const std::vector<size_t> given = structure.records_of(module, Role::kInput, record);
  return !given.empty() &&
         std::none_of(given.begin(), given.end(), [&](size_t i) { return is_same_tensor(run(), i, record); });
}

size_t StageSources::origin(size_t record) const {
  for (size_t at = record;;) {
    const size_t earlier = is_made_at(at) ? at : last_with_these_values(run(), at);
    if (earlier == at) return at;
    at = earlier;
  }
}

std::string StageSources::name(size_t record) const {
  const RecordedTensor& tensor = run().records[record];
  return (tensor.role == Role::kInput ? "input " : "") + tensor.key.name;
}

std::vector<size_t> StageSources::near(size_t record, int64_t wanted) const {
  const Structure& structure = failing_.structure();
  const std::string& module = structure.site(record).module;
  const bool inside = run().records[record].role == Role::kOutput && structure.is_container(module);
  std::vector<size_t> out;
  const auto same = [&](size_t a, size_t b) {
    return !run().records[a].checksum.empty() && run().records[a].checksum == run().records[b].checksum;
  };
  const auto add = [&](size_t i) {
    if (i >= record || out.size() >= kMostNear || size(i) == 0 || (wanted && size(i) != wanted) || same(i, record))
      return;
    if (std::none_of(out.begin(), out.end(), [&](size_t other) { return same(other, i); })) out.push_back(i);
  };
  if (module.empty()) {  // a stage of the pipeline: what came just before, whichever pass it was in
    for (size_t i = record, seen = 0; i-- > 0 && seen < 512; ++seen)
      if (structure.site(i).module.empty() || parent_of(parent_of(structure.site(i).module)).empty()) add(i);
    return out;
  }
  if (run().records[record].role == Role::kOutput)
    for (const size_t i : structure.records_of(module, Role::kInput, record)) add(i);
  if (!out.empty() && !inside) return out;
  const std::string scope = inside ? module : parent_of(module);
  // What the caller was given first: a residual adds to it, and much may have run since.
  for (std::string up = scope; !up.empty() && out.empty(); up = parent_of(up))
    for (const size_t i : structure.records_of(up, Role::kInput, record)) add(i);
  for (const size_t i : structure.records_inside(scope, record)) add(i);
  return out;
}

std::vector<size_t> StageSources::vectors(size_t record, int64_t channels) const {
  constexpr size_t kMost = 24;
  constexpr int64_t kMostParts = 12;
  std::vector<size_t> out;
  for (size_t i = record, seen = 0; i-- > 0 && seen < 400 && out.size() < kMost; ++seen) {
    if (!same_call(run(), i, record) || run().records[i].role != Role::kOutput) continue;
    const int64_t all = size(i);
    if (all == 0 || all % channels || all / channels > kMostParts || width(i) != all) continue;
    out.push_back(i);
  }
  return out;
}

namespace {

std::optional<Stage> find_stage(StageSources& in, size_t record) {
  const RecordedTensor& tensor = in.run().records[record];
  if (in.size(record) == 0) return std::nullopt;
  using Finder = std::optional<Stage> (*)(StageSources&, size_t);
  static constexpr Finder kOfTokens[] = {find_linear,     find_norm, find_function,
                                         find_modulation, find_sum,  find_product};
  static constexpr Finder kOfAll[] = {find_linear,     find_embedding,     find_norm, find_function,
                                      find_modulation, find_attention,     find_sum,  find_product,
                                      find_guidance,   find_time_features, find_part};
  const std::span<const Finder> finders = in.is_sampled() ? std::span<const Finder>(kOfTokens) : kOfAll;
  for (const Finder finder : finders)
    if (std::optional<Stage> stage = finder(in, record)) {
      stage->record = record;
      if (stage->place.empty())
        stage->place = place_of_code((tensor.role == Role::kInput ? "input " : "") + tensor.key.name);
      if (stage->work == 0) stage->work = kElementWork * in.size(record);
      return stage;
    }
  return std::nullopt;
}

}  // namespace

std::optional<Values> moved_by_rounding(Case& pair, double unit) {
  StageSources in(pair);
  in.set_tolerance(pair.tolerance);
  const std::optional<Stage> stage = find_stage(in, pair.reference_record());
  if (!stage || in.is_sampled()) return std::nullopt;
  std::vector<Flat> rounded;
  std::vector<const Flat*> given;
  rounded.reserve(stage->from.size());
  for (const size_t from : stage->from) {
    Flat& values = rounded.emplace_back(in.values(from));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(values[i] * (i % 2 ? 1 - 2 * unit : 1 + 2 * unit));
    given.push_back(&values);
  }
  Values out{pair.r.shape, stage->apply(given)};
  if (out.v.size() != pair.r.v.size()) return std::nullopt;
  return out;
}

StageGraph::StageGraph(Case& failing, const std::vector<size_t>& targets) : in_(failing) {
  in_.set_tolerance(failing.tolerance);
  for (const size_t target : targets) targets_.insert(in_.origin(target));
  std::set<size_t> waiting = targets_, seen;
  std::map<size_t, Stage> found;
  const size_t most = in_.is_sampled() ? kMostSampledStages : kMostStages;
  while (!waiting.empty() && found.size() < most) {
    const size_t record = *waiting.rbegin();  // the latest first
    waiting.erase(record);
    if (!seen.insert(record).second) continue;
    check_interrupt("replay");
    const bool known = !targets_.contains(record) && is_known(record);
    std::optional<Stage> stage = known ? std::nullopt : find_stage(in_, record);
    if (!stage) {
      leaves_.push_back(record);
      if (in_.size(record) > 0 && !targets_.contains(record))
        found.emplace(record, known ? handed_stage(in_, record) : given_stage(in_, record));
      continue;
    }
    for (size_t& from : stage->from) waiting.insert(from = in_.origin(from));
    found.emplace(record, std::move(*stage));
  }
  std::sort(leaves_.begin(), leaves_.end());
  for (auto& [record, stage] : found) stages_.push_back(std::move(stage));
}

std::vector<size_t> StageGraph::targets() const {
  std::vector<size_t> out;
  for (const Stage& stage : stages_)
    if (targets_.contains(stage.record)) out.push_back(stage.record);
  return out;
}

std::set<size_t> StageGraph::makers_of(size_t record) const {
  std::set<size_t> out{record};
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage)  // what is made later is seen first
    if (out.contains(stage->record)) out.insert(stage->from.begin(), stage->from.end());
  return out;
}

// Recorded by the candidate as well: it came before the first bad tensor, and is right.
bool StageGraph::is_known(size_t record) const {
  const RunView& run = in_.run();
  const auto recorded = [&](size_t i) { return in_.failing().partner && in_.failing().partner(i) != SIZE_MAX; };
  if (recorded(record)) return true;
  // The same tensor handed on: under another name the candidate may have it.
  for (size_t i = record + 1, n = 0; i < in_.failing().reference_record() && n < 64; ++i, ++n)
    if (recorded(i) && !run.records[i].checksum.empty() && run.records[i].checksum == run.records[record].checksum)
      return true;
  return false;
}

int64_t StageGraph::work_of(const std::vector<size_t>& changed) const {
  std::set<size_t> moved;
  int64_t work = 0;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const bool reached =
        std::find(changed.begin(), changed.end(), i) != changed.end() ||
        std::any_of(stages_[i].from.begin(), stages_[i].from.end(), [&](size_t r) { return moved.contains(r); });
    if (reached) work += stages_[i].work, moved.insert(stages_[i].record);
  }
  return work;
}

std::map<size_t, Flat> StageGraph::replay(const std::vector<Change>& changes) {
  std::map<size_t, Flat> made;
  for (size_t i = 0; i < stages_.size(); ++i) {
    const Stage& stage = stages_[i];
    const auto change = std::find_if(changes.begin(), changes.end(), [&](const Change& c) { return c.stage == i; });
    const bool moved = std::any_of(stage.from.begin(), stage.from.end(), [&](size_t r) { return made.contains(r); });
    if (change == changes.end() && !moved) continue;
    check_interrupt("replay");
    std::vector<const Flat*> given;
    for (const size_t from : stage.from) {
      const auto other = made.find(from);
      given.push_back(other != made.end() ? &other->second : &in_.values(from));
    }
    Flat out = change != changes.end() ? (*change->apply)(given) : stage.apply(given);
    if (static_cast<int64_t>(out.size()) != in_.size(stage.record)) return {};
    made[stage.record] = std::move(out);
  }
  return made;
}

}  // namespace lockstep
