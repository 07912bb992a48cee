// y = table[ids]: which rows, and of which table.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "diagnose/search/fit.h"
#include "diagnose/text/tokens.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr int64_t kMostTable = 1 << 26;  // elements

double residual_of(const Values& y, const Values& table, const std::vector<int64_t>& ids, int64_t offset) {
  Residual unexplained;
  for (int64_t i = 0; i < y.rows(); ++i) {
    const int64_t id = ids[static_cast<size_t>(i)] + offset;
    if (id < 0 || id >= table.rows()) continue;
    for (size_t j = 0; j < y.row(i).size(); ++j) {
      const double target = y.row(i)[j];
      unexplained.add(table.row(id)[j], target);
    }
  }
  return unexplained.relative();
}

// The row of the table that each row of y is; empty when one is none.
Ids rows_in(const Values& table, const Values& y) {
  std::multimap<float, int32_t> by_first;
  for (int64_t i = 0; i < table.rows(); ++i) by_first.emplace(table.row(i)[0], static_cast<int32_t>(i));
  Ids out;
  for (int64_t i = 0; i < y.rows(); ++i) {
    const auto [begin, end] = by_first.equal_range(y.row(i)[0]);
    const auto same = std::find_if(begin, end, [&](const auto& entry) {
      return std::equal(y.row(i).begin(), y.row(i).end(), table.row(entry.second).begin());
    });
    if (same == end) return {};
    out.push_back(same->second);
  }
  return out;
}

}  // namespace

void search_other_ids(Case& failing, Findings& out) {
  const auto table = failing.is_leaf ? failing.weight_r(failing.module + ".weight") : std::nullopt;
  if (!table || table->rank() != 2 || failing.role != Role::kOutput || table->last() != failing.r.last() ||
      table->last() != failing.c.last() || failing.r.rank() < 2 || failing.r.size() > kMostTable)
    return;
  const auto prompts = [&](const Values& y) {
    const Ids ids = rows_in(*table, y);
    std::vector<Ids> rows;
    const size_t batch = y.rank() > 2 ? static_cast<size_t>(y.shape[0]) : 1, width = ids.size() / batch;
    for (size_t at = 0; width > 0 && at + width <= ids.size(); at += width)
      rows.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(at),
                        ids.begin() + static_cast<std::ptrdiff_t>(at + width));
    return rows;
  };
  const std::vector<Ids> r = prompts(failing.r), c = prompts(failing.c);
  if (r.empty() || c.empty()) return;
  if (std::string words = token_difference(failing, r, c); !words.empty())
    out.push_back(other_input("other rows of the table were looked up: " + words, 0.9));
}

void search_embedding(Case& failing, Findings& out) {
  if (!failing.is_leaf || failing.role == Role::kInput || !failing.weights_r || !std::isfinite(failing.error)) return;
  const std::string own = failing.module + ".weight";
  const auto shape = failing.weights_r->shapes().find(own);
  if (shape == failing.weights_r->shapes().end() || shape->second.size() != 2 || shape->second[1] != failing.r.last() ||
      checked_numel(shape->second) > kMostTable)
    return;
  for (const Item& item : failing.items) {
    if (item.relation != Relation::kOwnInput || checked_numel(item.shape) != failing.r.rows() ||
        is_floating(failing.reference_run().records[item.reference].dtype))
      continue;
    const auto table = failing.weight_r(own);
    if (!table) return;
    std::vector<int64_t> ids, own_ids;
    for (const float id : failing.reference_of(item).v) ids.push_back(static_cast<int64_t>(id));
    for (const float id : failing.candidate_of(item).v) own_ids.push_back(static_cast<int64_t>(id));
    const double r = residual_of(failing.r, *table, ids, 0);
    if (!failing.explains(r) || own_ids.size() != ids.size()) return;
    if (failing.note_local(residual_of(failing.c, *table, own_ids, 0))) return;
    const auto add = [&](Cause cause, std::string yours, std::string fix, double residual, Blame blame) {
      out.push_back({.cause = cause,
                     .explanation = "reference: table[id]; yours: " + yours,
                     .fix = std::move(fix),
                     .residual_reference = r,
                     .residual = residual,
                     .complexity = 0.8,
                     .blame = blame});
    };
    for (const int64_t offset : {1, -1, 2, -2, 3, -3, 4, -4})
      if (const double residual = residual_of(failing.c, *table, own_ids, offset); failing.explains_candidate(residual))
        return add("embedding.offset", fmt::format("table[id {:+d}]", offset),
                   fmt::format("the rows of the table are off by {}", offset), residual, Blame::kNone);
    for (const auto& [name, other_shape] : failing.weights_r->shapes()) {
      if (other_shape != shape->second || name == own) continue;
      const auto other = failing.weight_r(name);
      if (!other) continue;
      if (const double residual = residual_of(failing.c, *other, own_ids, 0); failing.explains_candidate(residual))
        return add("linear.other_weight", "rows of " + name, "load " + own + " here", residual, Blame::kWeights);
    }
    const Values turned = reshaped(permuted(reshaped(*table, {table->last(), table->rows()}), {1, 0}), table->shape);
    if (const double residual = residual_of(failing.c, turned, own_ids, 0); failing.explains_candidate(residual))
      return add("linear.transposed_weight", "rows of the table read as [width, ids]", "do not transpose the table",
                 residual, Blame::kWeights);
    search_other_ids(failing, out);
    return;
  }
}

}  // namespace lockstep
