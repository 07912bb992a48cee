#include "compare/rank_assembly.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/interrupt.h"
#include "compare/rank_ways.h"
#include "compare/ranked_side.h"
#include "compare/shards.h"
#include "measure/pair_error.h"

namespace lockstep {
namespace {

// Which replica is compared: the one that is furthest from the other side's, so that no rank's mistake is overlooked.
struct Replicas {
  bool differ = false;
  size_t shown = 0;
};
Replicas look_at_replicas(const RankedSide& side, size_t i, const RankedSide& other, size_t partner) {
  Replicas out;
  if (side.is_identical(i) || !side.can_load(i)) return out;
  const std::vector<Tensor> all = side.load(i);
  const double unit = is_floating(all[0].dtype()) ? unit_roundoff(all[0].dtype()) : 0;
  for (const Tensor& one : all)
    out.differ = out.differ || one.shape() != all[0].shape() ||
                 !(pair_error(one, all[0]).relative <= (unit > 0 ? std::max(1e-5, 4 * unit) : 0));
  if (!out.differ || partner == SIZE_MAX || other.is_split(partner) || !other.can_load(partner)) return out;
  const Tensor wanted = other.load(partner)[0];
  double worst = -1;
  for (size_t r = 0; r < all.size(); ++r) {
    if (all[r].shape() != wanted.shape()) continue;
    const double error = pair_error(all[r], wanted).relative;
    if (!(error <= worst)) worst = error, out.shown = r;
  }
  return out;
}

struct Counts {
  std::map<std::string, std::set<std::string>> names_of;  // by words
  std::set<std::string> by_shape, unknown;
};

std::vector<RecordedTensor> assembled_records(const RankedSide& side, const RankedSide& other, Counts& counts) {
  std::vector<RecordedTensor> out;
  for (size_t i = 0; i < side.all.size(); ++i) {
    const Logical& logical = side.all[i];
    RecordedTensor record = side.run().records[logical.records[0]];
    record.key = logical.key;
    if (!side.is_split(i)) {
      out.push_back(std::move(record));
      continue;
    }
    check_interrupt("ranks");
    const std::string& name = logical.key.name;
    const std::vector<Shape> shapes = side.shapes(i);
    const auto chosen = side.chosen.find(side.name_key(i));
    const std::optional<Assembly> told = side.told(i);
    Assembly way{{Join::kReplicate, 0, 1, logical.records.size()}};
    const bool fits = chosen != side.chosen.end() && assembled_shape(chosen->second.way, shapes).has_value();
    if (fits) way = chosen->second.way;
    if (told) way = *told;
    auto shards = std::make_shared<RankShards>();
    shards->ranks = logical.ranks;
    for (const size_t r : logical.records)
      if (side.run().records[r].load) shards->load.push_back(side.run().records[r].load);
    shards->is_whole = is_replicated(way);
    shards->is_sum = has_sum(way);
    if (shards->is_whole) {
      const Replicas replicas = look_at_replicas(side, i, other, side.partner_of(other, i));
      shards->differ = replicas.differ, shards->shown = replicas.shown;
      record = side.run().records[logical.records[replicas.shown]];
      record.key = logical.key;
    } else {
      record.checksum.clear(), record.stats.reset();  // those of a shard
      record.shape = *assembled_shape(way, shapes);
      record.load = nullptr;
      if (shards->load.size() == logical.records.size())
        record.load = [way, load = shards->load] {
          std::vector<Tensor> pieces;
          for (const auto& one : load) pieces.push_back(one());
          return assembled(way, std::move(pieces));
        };
    }
    const std::string ranks = fmt::format("{} ranks", logical.records.size());
    if (!shards->is_whole)
      shards->words = fmt::format("assembled from {}: {}", ranks, words_of(way));
    else if (shards->differ)
      shards->words = fmt::format("the {} do not agree: rank {} is compared", ranks, logical.ranks[shards->shown]);
    counts.names_of[words_of(way)].insert(name);
    if (!told && !fits && !side.is_identical(i)) counts.unknown.insert(name);
    if (!told && fits && !chosen->second.by_values && !shards->is_whole) counts.by_shape.insert(name);
    record.shards = std::move(shards);
    out.push_back(std::move(record));
  }
  return out;
}

size_t count_ranks(const RunView& run) {
  std::set<std::string> ranks;
  for (const RecordedTensor& record : run.records)
    for (const auto& [tag, value] : record.key.tags)
      if (tag == "rank") ranks.insert(value);
  return ranks.size();
}

std::string note_of(const char* whose, size_t ranks, const Counts& counts) {
  std::string out = fmt::format("{} ran on {} ranks", whose, ranks);
  const char* before = ": ";
  for (const auto& [words, names] : counts.names_of)
    out += fmt::format("{}{} {}", std::exchange(before, "; "), names.size(), words);
  if (!counts.by_shape.empty())
    out += fmt::format("; {} of them by their shapes: no values of the other side agree", counts.by_shape.size());
  if (!counts.unknown.empty())
    out += fmt::format("; of {} the ranks differ and nothing tells how they belong together, as of {}",
                       counts.unknown.size(), *counts.unknown.begin());
  return out;
}

// What a map file takes, numbers left open where all layers agree.
Json found_ways(const RankedSide& side) {
  std::map<std::string, std::set<std::string>> texts;
  const auto open = [](const NameKey& key) { return with_numbers_open(RankedSide::label_of(key)); };
  for (const auto& [key, choice] : side.chosen) texts[open(key)].insert(text_of(choice.way));
  Json out = Json::object();
  for (const auto& [key, choice] : side.chosen)
    out[texts[open(key)].size() == 1 ? open(key) : RankedSide::label_of(key)] = text_of(choice.way);
  return out;
}

// Both sides are cut alike: then there is nothing to put together, and rank is compared with rank.
bool are_cut_alike(const RankedSide& reference, const RankedSide& candidate) {
  bool any = false;
  for (size_t j = 0; j < candidate.all.size(); ++j) {
    const size_t i = candidate.partner_of(reference, j);
    if (i == SIZE_MAX) continue;
    if (reference.all[i].ranks != candidate.all[j].ranks || reference.shapes(i) != candidate.shapes(j)) return false;
    any = true;
  }
  return any;
}

// The ranks of each tensor side by side, so that the first divergence is the first of all ranks.
std::vector<RecordedTensor> side_by_side(const RankedSide& side) {
  std::vector<RecordedTensor> out;
  for (const Logical& logical : side.all)
    for (const size_t r : logical.records) out.push_back(side.run().records[r]);
  return out;
}

}  // namespace

RankRules read_rank_rules(const fs::path& file) {
  RankRules out;
  const Json document = read_json(file);
  if (!document.is_object() || !document.contains("ranks")) return out;
  const auto refuse = [&](const Json& got) {
    fail(Code::kBadInput, "map", "\"ranks\" cannot be read in " + file.string(),
         {.expected = R"({"candidate": {"layers.#.up": "concatenate 2"}})", .got = got.dump().substr(0, 200)});
  };
  const Json& ranks = document["ranks"];
  if (!ranks.is_object()) refuse(ranks);
  for (const auto& [side, names] : ranks.items()) {
    if ((side != "reference" && side != "candidate") || !names.is_object()) refuse(ranks);
    for (const auto& [name, way] : names.items()) {
      if (!way.is_string()) refuse(names);
      assembly_from_text(way.get<std::string>(), 2);  // what cannot be read is refused, used or not
      (side == "reference" ? out.reference : out.candidate).emplace_back(name, way.get<std::string>());
    }
  }
  return out;
}

bool has_ranks(const RunView& run) {
  return std::any_of(run.records.begin(), run.records.end(), [](const RecordedTensor& record) {
    return std::any_of(record.key.tags.begin(), record.key.tags.end(),
                       [](const auto& tag) { return tag.first == "rank"; });
  });
}

RankAssembly put_ranks_together(RunView& reference, RunView& candidate, const std::vector<MapRule>& map,
                                const RankRules& rules) {
  RankAssembly out;
  if (!has_ranks(reference) && !has_ranks(candidate)) return out;
  const size_t of_reference = count_ranks(reference), of_candidate = count_ranks(candidate);
  RankedSide one(reference, nullptr, rules.reference), two(candidate, &map, rules.candidate);
  if (of_reference == of_candidate && rules.reference.empty() && rules.candidate.empty() && are_cut_alike(one, two)) {
    std::vector<RecordedTensor> theirs = side_by_side(one), own = side_by_side(two);
    reference.records = std::move(theirs), candidate.records = std::move(own);
    out.notes.push_back(fmt::format("both ran on {} ranks, cut alike: rank is compared with rank", of_reference));
    return out;
  }
  choose_ways(one, two);
  Counts in_reference, in_candidate;
  std::vector<RecordedTensor> theirs = assembled_records(one, two, in_reference),
                              own = assembled_records(two, one, in_candidate);
  reference.records = std::move(theirs), candidate.records = std::move(own);
  if (of_reference > 0) {
    out.notes.push_back(note_of("the reference", of_reference, in_reference));
    out.found["reference"] = found_ways(one);
  }
  if (of_candidate > 0) {
    out.notes.push_back(note_of("yours", of_candidate, in_candidate));
    out.found["candidate"] = found_ways(two);
  }
  return out;
}

}  // namespace lockstep
