#include "diagnose/attention/attention_inputs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "diagnose/search/fit.h"

namespace lockstep {
namespace {

enum class Part { kNone, kQ, kK, kV, kFused };

std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> out{""};
  for (const char c : name) {
    if (c == '_' || c == '.' || c == '-')
      out.emplace_back();
    else
      out.back() += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  }
  return out;
}

bool has_word(const std::vector<std::string>& words, std::initializer_list<const char*> any) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
    return std::any_of(any.begin(), any.end(), [&](const char* one) { return word == one; });
  });
}

Part part_of(const std::string& leaf) {
  const auto words = words_of(leaf);
  if (has_word(words, {"qkv"})) return Part::kFused;
  if (has_word(words, {"q", "query", "wq", "queries"})) return Part::kQ;
  if (has_word(words, {"k", "key", "wk", "keys"})) return Part::kK;
  if (has_word(words, {"v", "value", "wv", "values"})) return Part::kV;
  return Part::kNone;
}

// Which part the outputs inside `scope` are: by their names; a module without a telling name is what it takes (the norm
// of q takes what made q); and where no name says anything, the first three that take one and the same tensor are q, k
// and v.
class Parts {
 public:
  Parts(Case& failing, const std::string& scope) : failing_(failing) {
    std::vector<size_t> records = failing.structure().records_inside(scope, failing.reference_record());
    std::reverse(records.begin(), records.end());  // in the order of the program
    for (const size_t record : records) {
      const RecordedTensor& recorded = failing.reference_run().records[record];
      const std::string leaf = recorded.key.name.substr(scope.size() + 1);
      if (recorded.role != Role::kOutput || leaf.find('.') != std::string::npos) continue;
      outputs_.push_back(record);
      if (const Part part = part_of(leaf); part != Part::kNone) parts_[record] = part;
    }
    if (parts_.empty()) take_by_order();
    for (const size_t record : outputs_)
      if (!parts_.contains(record)) take_from_input(record);
  }

  Part of(size_t record) const {
    const auto found = parts_.find(record);
    return found == parts_.end() ? Part::kNone : found->second;
  }
  bool is_made_from_another(size_t record) const { return made_from_another_.contains(record); }

 private:
  size_t input_of(size_t record) const {  // SIZE_MAX: none, or several
    const std::string& module = failing_.structure().site(record).module;
    const std::vector<size_t> inputs = failing_.structure().records_of(module, Role::kInput, record);
    return inputs.size() == 1 ? inputs[0] : SIZE_MAX;
  }

  // Checksums are of packed bytes, so that a view in another shape is the same; only without them values are read.
  bool are_equal(size_t a, size_t b) const {
    const RecordedTensor &x = failing_.reference_run().records[a], &y = failing_.reference_run().records[b];
    if (x.dtype != y.dtype || checked_numel(x.shape) != checked_numel(y.shape)) return false;
    if (!x.checksum.empty() && !y.checksum.empty()) return x.checksum == y.checksum;
    const Values &of_x = failing_.load_reference(a), &of_y = failing_.load_reference(b);
    return !of_x.empty() && of_x.v == of_y.v;
  }

  void take_from_input(size_t record) {
    const auto numel = [&](size_t of) { return checked_numel(failing_.reference_run().records[of].shape); };
    const size_t input = input_of(record);
    if (input == SIZE_MAX || numel(input) != numel(record)) return;
    for (const auto& [other, part] : parts_) {
      if (other >= record || !are_equal(other, input)) continue;
      made_from_another_.insert(record);
      parts_[record] = part;
      return;
    }
  }

  void take_by_order() {
    for (size_t i = 0; i + 2 < outputs_.size(); ++i) {
      const size_t input = input_of(outputs_[i]);
      if (input == SIZE_MAX) continue;
      std::vector<size_t> same{outputs_[i]};
      for (size_t j = i + 1; j < outputs_.size() && same.size() < 3; ++j)
        if (const size_t other = input_of(outputs_[j]); other != SIZE_MAX && are_equal(other, input))
          same.push_back(outputs_[j]);
      if (same.size() < 3) continue;
      parts_ = {{same[0], Part::kQ}, {same[1], Part::kK}, {same[2], Part::kV}};
      return;
    }
  }

  Case& failing_;
  std::vector<size_t> outputs_;
  std::map<size_t, Part> parts_;
  std::set<size_t> made_from_another_;
};

bool is_second_stream(const std::string& leaf) {
  return has_word(words_of(leaf), {"add", "added", "txt", "text", "context", "encoder", "c"});
}

bool is_norm(const std::string& leaf) {
  const auto words = words_of(leaf);
  return std::any_of(words.begin(), words.end(),
                     [](const std::string& word) { return word.find("norm") != std::string::npos || word == "ln"; });
}

}  // namespace

AttentionInputs::AttentionInputs(Case& failing, bool candidate) {
  // The bad tensor is the input of the output projection, or the output of an attention without one.
  add_projections(failing, candidate);
  if (streams.empty()) add_fused(failing, candidate);
  std::erase_if(streams, [](const AttentionStream& s) { return !s.complete(); });
  if (streams.empty()) return;
  keep_one_item(failing);
  add_tables(failing, candidate);
  add_norm_weights(failing, candidate);
  const int64_t tokens = (picture ? failing.r.size() / failing.r.shape[1] : failing.r.rows()) / batch;
  for (size_t i = 0; i < streams.size(); ++i) {
    const int64_t size = streams[i].some_q()->size(), width = size / tokens;
    if (size % tokens == 0 && width == (picture ? failing.r.shape[1] : failing.r.last())) own = static_cast<int>(i);
  }
  // Both streams of the same length: the second stream's output projection says so in its name.
  if (streams.size() == 2 && streams[0].some_q()->size() == streams[1].some_q()->size())
    own = is_second_stream(leaf_of(failing.module)) ? 0 : 1;
}

// No token attends to another item's.
void AttentionInputs::keep_one_item(const Case& failing) {
  if (failing.r.rank() < 3 || failing.r.shape[0] < 2) return;
  batch = failing.r.shape[0], item = worst_item(failing);
  for (const AttentionStream& stream : streams) of_all_items_.emplace_back(stream.k, stream.v);
  for (AttentionStream& stream : streams)
    for (const Values** values : {&stream.q, &stream.k, &stream.v, &stream.early_q, &stream.early_k})
      if (*values) *values = &owned_.emplace_back(batch_item(**values, item, batch));
}

void AttentionInputs::add_projections(Case& failing, bool candidate) {
  std::string scope = failing.role == Role::kInput || failing.is_leaf ? parent_of(failing.module) : failing.module;
  AttentionStream first, second;
  std::set<Part> first_taken, second_taken;
  std::map<size_t, const Item*> good;
  for (const Item& item : failing.items) good.emplace(item.reference, &item);
  // Latest first: what a norm left stands before what went into it. `to_out.0` sits one level below its attention.
  for (int level = 0; level < 2 && !first.some_q() && !scope.empty(); ++level, scope = parent_of(scope)) {
    const Parts parts(failing, scope);
    for (const size_t record : failing.structure().records_inside(scope, failing.reference_record())) {
      const RecordedTensor& recorded = failing.reference_run().records[record];
      const std::string leaf = recorded.key.name.substr(scope.size() + 1);
      const Part part = parts.of(record);
      if (recorded.role != Role::kOutput || leaf.find('.') != std::string::npos) continue;
      if (part == Part::kNone || part == Part::kFused) continue;
      // A module that the candidate did not call at all leaves its place empty there, and is known on this side.
      const bool not_called = failing.partner && failing.partner(record) == SIZE_MAX;
      const auto item = good.find(record);
      if (item == good.end() && !not_called) continue;
      const Values* values = !candidate   ? &failing.load_reference(record)
                             : not_called ? nullptr
                                          : &failing.candidate_of(*item->second);
      if (values && values->empty()) continue;
      AttentionStream& stream = is_second_stream(leaf) ? second : first;
      std::set<Part>& taken = &stream == &second ? second_taken : first_taken;
      const bool is_first = taken.insert(part).second;
      if (is_first) {
        (part == Part::kQ ? stream.q : part == Part::kK ? stream.k : stream.v) = values;
        (part == Part::kQ ? stream.q_record : part == Part::kK ? stream.k_record : stream.v_record) = record;
      } else if (part == Part::kQ) {
        stream.early_q = values, stream.early_q_record = record;
      } else if (part == Part::kK) {
        stream.early_k = values, stream.early_k_record = record;
      } else {
        stream.v_record = record;
      }
      if ((is_norm(leaf) || parts.is_made_from_another(record)) && !recorded.shape.empty())
        norm_widths_.push_back(recorded.shape.back());
    }
  }
  if (second.some_q()) streams.push_back(second);  // text stands before the image in a joint attention
  if (first.some_q()) streams.push_back(first);
}

void AttentionInputs::add_norm_weights(const Case& failing, bool candidate) {
  if (!failing.weights_r || norm_widths_.empty()) return;
  std::string scope = parent_of(failing.module);
  for (int level = 0; level < 2 && norm_weights.empty(); ++level, scope = parent_of(scope))
    for (const auto& [name, shape] : failing.weights_r->shapes()) {
      if (!is_inside(name, scope) || !is_norm(name.substr(scope.size() + 1)) || norm_weights.size() >= 8) continue;
      if (checked_numel(shape) != norm_widths_.front()) continue;
      if (auto weight = candidate ? failing.weight_c(name) : failing.weight_r(name))
        norm_weights.emplace_back(name, std::move(weight->v));
    }
}

void AttentionInputs::add_fused(Case& failing, bool candidate) {
  const std::string scope =
      failing.role == Role::kInput || failing.is_leaf ? parent_of(failing.module) : failing.module;
  streams.clear();
  for (const Item& item : failing.items) {
    if (item.role != Role::kOutput || !is_inside(item.name, scope) || part_of(leaf_of(item.name)) != Part::kFused)
      continue;
    const Values fused = batch_item(candidate ? failing.candidate_of(item) : failing.reference_of(item),
                                    worst_item(failing), failing.r.rank() < 3 ? 1 : failing.r.shape[0]);
    const int axis = fused.rank() >= 4 ? 1 : static_cast<int>(fused.rank()) - 1;
    picture = fused.rank() >= 4;
    const Values rows = channels_last(fused, axis);
    const int64_t third = rows.last() / 3;
    if (third * 3 != rows.last() ||
        (picture ? failing.r.rank() < 4 || failing.r.shape[1] != third : failing.r.last() != third))
      continue;
    AttentionStream stream;
    for (int part = 0; part < 3; ++part) {
      Values& piece = owned_.emplace_back(make_values({rows.rows(), third}));
      for (int64_t i = 0; i < rows.rows(); ++i)
        std::copy_n(rows.row(i).begin() + part * third, third, piece.row(i).begin());
      (part == 0 ? stream.q : part == 1 ? stream.k : stream.v) = &piece;
    }
    stream.fused = &owned_.emplace_back(rows);
    streams.push_back(stream);
    return;
  }
}

// A row a token; where no table has that, one that repeats.
RotaryTable AttentionInputs::table_for(const Values& x, const std::vector<RotaryTable>& tables) const {
  for (const bool exactly : {true, false})
    for (const RotaryTable& table : tables) {
      const int64_t width = 2 * table.pairs;
      if (exactly ? table.rows == tokens_of(x, width) : x.size() % (table.rows * width) == 0) return table;
    }
  return {};
}

void AttentionInputs::add_tables(Case& failing, bool candidate) {
  const std::vector<RotaryTable> tables = recorded_tables(failing, candidate, failing.reference_record());
  for (AttentionStream& stream : streams) stream.table = table_for(*stream.some_q(), tables);
}

const RotaryVariants& AttentionInputs::variants() const {
  std::vector<const RotaryTable*> tables;
  if (has_tables())
    for (const AttentionStream& stream : streams) tables.push_back(&stream.table);
  if (!variants_) variants_ = std::make_unique<const RotaryVariants>(tables);
  return *variants_;
}

void AttentionInputs::find_other_calls(Case& failing) {
  if (!others.empty()) return;
  find_other_items();
  find_earlier_calls(failing);
}

// What other items have: a kernel may take the batch for tokens.
void AttentionInputs::find_other_items() {
  constexpr size_t kMostItems = 3;
  for (int64_t i = 0; i < batch && others.size() < kMostItems; ++i) {
    if (i == item || of_all_items_.empty()) continue;
    OtherCall other{"item " + std::to_string(i) + " of the batch", true, streams};
    for (size_t s = 0; s < streams.size(); ++s) {
      const auto [k, v] = of_all_items_[s];
      if (!k || !v) return;
      other.streams[s].k = &owned_.emplace_back(batch_item(*k, i, batch));
      other.streams[s].v = &owned_.emplace_back(batch_item(*v, i, batch));
      other.streams[s].q = other.streams[s].early_q = other.streams[s].early_k = other.streams[s].fused = nullptr;
    }
    others.push_back(std::move(other));
  }
}

// What a call before this one had for keys and values: a cache may have kept them.
void AttentionInputs::find_earlier_calls(Case& failing) {
  constexpr size_t kMostCalls = 3;
  if (!failing.partner) return;
  for (const AttentionStream& stream : streams)
    if (stream.k_record == SIZE_MAX || stream.v_record == SIZE_MAX) return;
  const RunView& run = failing.reference_run();
  const auto value_of = [&](size_t record) -> const Values* {
    const size_t partner = failing.partner(record);
    if (partner == SIZE_MAX || !run.records[record].load) return nullptr;
    const Values& all = failing.load_candidate(partner);
    if (all.empty()) return nullptr;
    return batch > 1 ? &owned_.emplace_back(batch_item(all, item, batch)) : &all;
  };
  const auto before = [&](size_t record, size_t end) {
    while (end-- > 0)
      if (run.records[end].key.name == run.records[record].key.name &&
          run.records[end].role == run.records[record].role)
        return end;
    return SIZE_MAX;
  };
  std::vector<size_t> k_at, v_at;
  for (const AttentionStream& stream : streams) k_at.push_back(stream.k_record), v_at.push_back(stream.v_record);
  for (size_t calls = 0; calls < kMostCalls; ++calls) {
    OtherCall call;
    for (size_t s = 0; s < streams.size(); ++s) {
      k_at[s] = before(streams[s].k_record, k_at[s]), v_at[s] = before(streams[s].v_record, v_at[s]);
      if (k_at[s] == SIZE_MAX || v_at[s] == SIZE_MAX) return;
      AttentionStream stream;
      stream.k = value_of(k_at[s]), stream.v = value_of(v_at[s]);
      if (!stream.k || !stream.v || !streams[s].k || stream.k->last() != streams[s].k->last()) return;
      if (streams[s].table.rows) stream.table = table_for(*stream.k, recorded_tables(failing, true, v_at[s]));
      call.streams.push_back(std::move(stream));
    }
    const TensorKey& key = run.records[v_at[0]].key;
    call.when = key.step >= 0 ? "step " + std::to_string(key.step) : "an earlier call";
    for (const auto& [tag, value] : key.tags) call.when += " (" + tag + "=" + value + ")";
    others.push_back(std::move(call));
  }
}

void AttentionInputs::assume_table(double theta, int64_t head_size) {
  for (AttentionStream& stream : streams)
    stream.table = standard_table(tokens_of(*stream.some_q(), head_size), head_size / 2, theta);
  variants_.reset();
}

bool AttentionInputs::has_tables() const {
  return std::all_of(streams.begin(), streams.end(), [](const AttentionStream& s) { return s.table.rows > 0; });
}

int64_t AttentionInputs::tokens_of(const Values& x, int64_t head_size) const {
  if (x.rank() >= 4 && !picture) return x.size() / (x.dim(-1) * x.dim(-2));  // [batch, tokens, heads, d]
  return x.size() / std::max<int64_t>(head_size, x.last());
}

int64_t AttentionInputs::key_heads(int64_t head_size) const {
  const Values& v = *streams[static_cast<size_t>(own)].v;
  return std::max<int64_t>(1, v.size() / tokens_of(v, head_size) / head_size);
}

std::vector<int64_t> AttentionInputs::head_sizes(int64_t width) const {
  std::vector<int64_t> out;
  const auto add = [&](int64_t d) {
    if (d >= 2 && width % d == 0 && std::find(out.begin(), out.end(), d) == out.end()) out.push_back(d);
  };
  for (const int64_t d : norm_widths_)
    if (d < width) add(d);
  for (const AttentionStream& stream : streams)
    if (stream.table.rows) add(2 * stream.table.pairs);
  if (picture) add(width);
  for (const int64_t d : {128, 64, 80, 32, 16, 8, 40, 96, 256, 72, 48, 24, 88, 104, 112, 160, 192}) add(d);
  add(width);
  return out;
}

}  // namespace lockstep
