// y = x W^T + b: which weight, how it lies, whether the bias is there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "compare/families/fit.h"
#include "compare/layouts.h"
#include "compare/small_solve.h"
#include "compare/weight_relation.h"

namespace lockstep {
namespace {

constexpr int64_t kProbeRows = 24, kProbeColumns = 64, kMostLoads = 40, kMostSolved = 512;

// ||x W^T + b - y|| / ||y|| over sampled rows and columns.
double residual_of(const Values& x, const Values& y, const Values& w, const std::vector<float>* bias,
                   const std::vector<int64_t>& columns) {
  const int64_t inputs = w.last();
  double dd = 0, yy = 0;
  for (int64_t i = 0; i < x.rows(); ++i) {
    const auto row = x.row(i);
    for (const int64_t j : columns) {
      double sum = bias ? (*bias)[static_cast<size_t>(j)] : 0;
      const float* weights = w.v.data() + j * inputs;
      for (int64_t k = 0; k < inputs; ++k) sum += static_cast<double>(row[static_cast<size_t>(k)]) * weights[k];
      const double d = sum - y.row(i)[static_cast<size_t>(j)];
      dd += d * d, yy += static_cast<double>(y.row(i)[static_cast<size_t>(j)]) * y.row(i)[static_cast<size_t>(j)];
    }
  }
  return yy > 0 ? std::sqrt(dd / yy) : INFINITY;
}

class Search {
 public:
  Search(Case& failing, const Item& input, Values weight) : failing_(failing), w_(std::move(weight)) {
    const int64_t rows = failing.r.rows();
    const std::vector<int64_t> chosen = sample_indices(rows, kProbeRows);
    x_r_ = take_rows(failing.reference_of(input), chosen), x_c_ = take_rows(failing.candidate_of(input), chosen);
    y_r_ = take_rows(failing.r, chosen), y_c_ = take_rows(failing.c, chosen);
    columns_ = sample_indices(w_.shape[0], kProbeColumns);
    if (auto bias = failing.weight_r(failing.module + ".bias"); bias && bias->size() == w_.shape[0])
      bias_ = std::move(bias->v);
  }

  bool explains_reference(double& residual) const {
    residual = residual_of(x_r_, y_r_, w_, bias(), columns_);
    return failing_.explains(residual);
  }
  double with_reference() const { return residual_of(x_c_, y_c_, w_, bias(), columns_); }
  double candidate(const Values& w, const std::vector<float>* b) const {
    return w.shape == w_.shape ? residual_of(x_c_, y_c_, w, b, columns_) : INFINITY;
  }
  const std::vector<float>* bias() const { return bias_.empty() ? nullptr : &bias_; }
  const Values& weight() const { return w_; }
  // What is left of the candidate's output when the right product is taken away, in the columns that are looked at.
  std::vector<float> own_bias() const {
    std::vector<float> out(static_cast<size_t>(w_.shape[0]));
    for (const int64_t j : columns_) {
      double sum = 0;
      for (int64_t i = 0; i < x_c_.rows(); ++i) {
        sum += y_c_.row(i)[static_cast<size_t>(j)];
        for (size_t k = 0; k < x_c_.row(i).size(); ++k) sum -= static_cast<double>(x_c_.row(i)[k]) * w_.row(j)[k];
      }
      out[static_cast<size_t>(j)] = static_cast<float>(sum / static_cast<double>(x_c_.rows()));
    }
    return out;
  }
  int64_t rows() const { return x_c_.rows(); }
  bool good(double residual) const {
    return failing_.explains_candidate(residual) && failing_.is_better(residual, with_reference());
  }

 private:
  Case& failing_;
  Values w_, x_r_, x_c_, y_r_, y_c_;
  std::vector<float> bias_;
  std::vector<int64_t> columns_;
};

void search_bias(Case& failing, const Search& search, double r, Findings& out) {
  const auto add = [&](const char* cause, std::string yours, std::string fix, double residual, Blame blame) {
    out.push_back(
        {cause, fmt::format("reference: x W^T + b; yours: {}", yours), std::move(fix), "", r, residual, 0.7, 0, blame});
  };
  if (search.bias()) {
    const double without = search.candidate(search.weight(), nullptr);
    if (search.good(without))
      add("linear.bias_missing", "x W^T", fmt::format("add {}.bias", failing.module), without, Blame::kNone);
    std::vector<float> twice = *search.bias();
    for (float& value : twice) value *= 2;
    const double doubled = search.candidate(search.weight(), &twice);
    if (search.good(doubled)) add("linear.bias_doubled", "x W^T + 2 b", "add the bias once", doubled, Blame::kNone);
  }
  size_t loads = 0;
  for (const auto& [name, shape] : failing.weights_r->shapes()) {
    if (shape.size() != 1 || shape[0] != search.weight().shape[0] || name == failing.module + ".bias" || ++loads > 400)
      continue;
    const auto other = failing.weight_r(name);
    if (!other) continue;
    const double residual = search.candidate(search.weight(), &other->v);
    if (search.good(residual)) {
      add("linear.other_bias", "x W^T + " + name, fmt::format("load {}.bias here", failing.module), residual,
          Blame::kWeights);
      return;
    }
  }
}

void search_solved_bias(Case& failing, const Search& search, double r, Findings& out) {
  if (search.rows() < 4) return;
  const std::vector<float> own = search.own_bias();
  const double residual = search.candidate(search.weight(), &own);
  if (!search.good(residual)) return;
  out.push_back({"linear.different_bias",
                 "reference: x W^T + b; yours: x W^T plus another vector, which is no bias of the checkpoint",
                 fmt::format("compare the loaded {}.bias with the file", failing.module), "", r, residual, 0.9, 0,
                 Blame::kWeights});
}

void search_own_weight(Case& failing, const Search& search, double r, Findings& out) {
  const Values& w = search.weight();
  const auto add = [&](const char* cause, std::string yours, std::string fix, double residual, double complexity) {
    out.push_back({cause, fmt::format("reference: x W^T + b with W = {}.weight; yours: {}", failing.module, yours),
                   std::move(fix), "", r, residual, complexity, 0, Blame::kWeights});
  };
  {
    const double residual = search.candidate(make_values(w.shape), search.bias());
    if (search.good(residual))
      return add("linear.zero_weight", "0 x + b: every row is the bias", "the weight is zeros: it was never loaded",
                 residual, 0.7);
  }
  if (w.shape[0] == w.shape[1]) {
    const double residual = search.candidate(permuted(w, {1, 0}), search.bias());
    if (search.good(residual))
      add("linear.transposed_weight", "x W + b", "transpose the weight when it is loaded, or multiply by its transpose",
          residual, 0.7);
  }
  {  // [out, in] memory read as [in, out]
    const double residual = search.candidate(reshaped(permuted(w, {1, 0}), w.shape), search.bias());
    if (w.shape[0] != w.shape[1] && search.good(residual))
      add("linear.transposed_weight", "x V^T + b, V = the memory of W^T read as W's shape",
          "transpose the weight, do not only rename its axes", residual, 0.8);
  }
  for (const int64_t parts : {2, 3, 4}) {
    if (w.shape[1] % parts) continue;
    const int64_t size = w.shape[1] / parts;
    std::vector<int64_t> order(static_cast<size_t>(parts));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    while (std::next_permutation(order.begin(), order.end())) {
      Values moved = w;
      for (int64_t row = 0; row < w.shape[0]; ++row)
        for (int64_t p = 0; p < parts; ++p)
          std::copy_n(w.row(row).begin() + order[static_cast<size_t>(p)] * size, size,
                      moved.row(row).begin() + p * size);
      const double residual = search.candidate(moved, search.bias());
      if (!search.good(residual)) continue;
      add("linear.input_parts_exchanged", fmt::format("the input's {} parts in another order", parts),
          "join the parts of the input in the reference's order", residual, 1);
      return;
    }
  }
  static const std::pair<const char*, float (*)(float)> kRoundings[] = {
      {"bfloat16", [](float x) { return float_from(bfloat16_from(x)); }},
      {"float16", [](float x) { return float_from(half_from(x)); }},
      {"float8 e4m3", [](float x) { return float_from(float8_e4m3_from(x)); }}};
  for (const auto& [format, round] : kRoundings) {
    Values rounded = w;
    for (float& value : rounded.v) value = round(value);
    const double residual = search.candidate(rounded, search.bias());
    if (search.good(residual))
      return add("linear.weight_rounded", fmt::format("W rounded to {}", format), "keep the weight in its own dtype",
                 residual, 1);
  }
  for (const int bits : {8, 4})
    for (const int64_t group : {int64_t{32}, int64_t{64}, int64_t{128}, w.last()})
      for (const bool affine : {false, true}) {
        const double residual = search.candidate(quantised(w, bits, group, affine), search.bias());
        if (search.good(residual))
          return add("linear.weight_quantised",
                     fmt::format("W in {} bits, groups of {}{}", bits, group, affine ? ", affine" : ""),
                     "expected when the candidate is quantised; else load the full weight", residual, 1);
      }
}

void search_other_weights(Case& failing, const Search& search, double r, Findings& out) {
  // The same projection in other layers and its neighbours first: reading a checkpoint costs.
  std::vector<std::string> names;
  for (const auto& [name, shape] : failing.weights_r->shapes())
    if (shape == search.weight().shape && name != failing.module + ".weight") names.push_back(name);
  const std::string parent = parent_of(failing.module), leaf = leaf_of(failing.module);
  const auto rank = [&](const std::string& name) {
    const std::string module = parent_of(name);
    return parent_of(module) == parent ? 0 : leaf_of(module) == leaf ? 1 : 2;
  };
  std::stable_sort(names.begin(), names.end(), [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  if (names.size() > kMostLoads) names.resize(kMostLoads);
  for (const std::string& name : names) {
    const auto other = failing.weight_r(name);
    if (!other) continue;
    const auto other_bias = failing.weight_r(parent_of(name) + ".bias");
    for (const bool its_bias : {true, false}) {
      if (its_bias && !other_bias) continue;
      const double residual = search.candidate(*other, its_bias ? &other_bias->v : search.bias());
      if (!search.good(residual)) continue;
      out.push_back(
          {"linear.other_weight",
           fmt::format("reference: x W^T + b with W = {}.weight; yours: the same with W = {}", failing.module, name),
           fmt::format("load {}.weight here: the index of the layer or the name of the projection is off",
                       failing.module),
           "", r, residual, 0.7, 0, Blame::kWeights});
      return;
    }
  }
}

// Rows of all calls of the module; the weight is then what maps its inputs to its outputs.
std::optional<Values> solved_weight(Case& failing, int64_t inputs, int64_t outputs, double& residual) {
  if (inputs > kMostSolved) return std::nullopt;
  const RunView& run = failing.candidate_run();
  std::vector<std::pair<const Values*, const Values*>> calls;
  int64_t rows = 0;
  size_t latest_input = SIZE_MAX;
  for (size_t i = 0; i < run.records.size() && rows < 8 * inputs; ++i) {
    const RecordedTensor& record = run.records[i];
    if (record.key.name != failing.module || !record.load) continue;
    if (record.role == Role::kInput) {
      latest_input = i;
    } else if (latest_input != SIZE_MAX) {
      const Values &x = failing.load_candidate(latest_input), &y = failing.load_candidate(i);
      latest_input = SIZE_MAX;
      if (x.last() != inputs || y.last() != outputs || x.rows() != y.rows()) continue;
      calls.emplace_back(&x, &y);
      rows += x.rows();
    }
  }
  const size_t n = static_cast<size_t>(inputs) + 1, m = static_cast<size_t>(outputs);
  if (rows < inputs + 1 + inputs / 8) return std::nullopt;
  std::vector<double> gram(n * n), right(n * m);
  for (const auto& [x, y] : calls)
    for (int64_t row = 0; row < x->rows(); ++row) {
      std::vector<double> in(n, 1);
      for (size_t k = 0; k + 1 < n; ++k) in[k] = x->row(row)[k];
      for (size_t a = 0; a < n; ++a) {
        for (size_t b = 0; b <= a; ++b) gram[a * n + b] += in[a] * in[b];
        for (size_t j = 0; j < m; ++j) right[a * m + j] += in[a] * y->row(row)[j];
      }
    }
  double trace = 0;
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = 0; b < a; ++b) gram[b * n + a] = gram[a * n + b];
    trace += gram[a * n + a];
  }
  for (size_t a = 0; a < n; ++a) gram[a * n + a] += 1e-11 * trace / static_cast<double>(n);
  if (!solve_symmetric(gram, right, n, m)) return std::nullopt;
  Values w = make_values({outputs, inputs});
  std::vector<float> bias(m);
  for (size_t j = 0; j < m; ++j) {
    for (size_t k = 0; k + 1 < n; ++k) w.v[j * (n - 1) + k] = static_cast<float>(right[k * m + j]);
    bias[j] = static_cast<float>(right[(n - 1) * m + j]);
  }
  double dd = 0, yy = 0;
  const std::vector<int64_t> columns = sample_indices(outputs, kProbeColumns);
  for (const auto& [x, y] : calls) {
    const double norm = squared_norm(y->v), part = residual_of(*x, *y, w, &bias, columns);
    dd += part * part * norm, yy += norm;
  }
  residual = yy > 0 ? std::sqrt(dd / yy) : INFINITY;
  return w;
}

void search_solved(Case& failing, const Search& search, double r, Findings& out) {
  double residual = INFINITY;
  const auto solved = solved_weight(failing, search.weight().shape[1], search.weight().shape[0], residual);
  if (!solved || residual > std::max(50 * failing.tolerance, 1e-3)) return;
  const WeightRelation relation = relate_weights(failing.module + ".weight", *solved, search.weight());
  // A solved weight has noise of its own: only what stands out is said.
  const bool random = relation.id == "weights.random";
  out.push_back(
      {random ? "linear.random_weight" : "linear.different_weight",
       fmt::format("reference: x W^T + b with W = {}.weight; yours: linear in x too, but with a weight that is none of "
                   "the checkpoint's{}",
                   failing.module, random ? " (" + relation.words + ")" : ""),
       random ? fmt::format("{}.weight was never loaded: check its name in the loader", failing.module)
              : fmt::format("compare the loaded {}.weight with the file (lockstep weights compare)", failing.module),
       "", r, std::min(residual, failing.tolerance), 1.8, 0, Blame::kWeights});
}

void search_given_weights(Case& failing, const Search& search, double r, Findings& out) {
  if (!failing.weights_c) return;
  const auto own = failing.weights_c->find(failing.module + ".weight");
  const auto own_bias = failing.weights_c->find(failing.module + ".bias");
  if (!own) {
    if (!failing.weights_c->shapes().empty())
      out.push_back({"weights.missing",
                     fmt::format("reference: has {0}.weight; your checkpoint has none of that name", failing.module),
                     "load it: an unloaded weight keeps its initial values", "", r, failing.tolerance, 1.5, 0,
                     Blame::kWeights});
    return;
  }
  const double residual = search.candidate(*own, own_bias ? &own_bias->v : nullptr);
  const WeightRelation relation = relate_weights(failing.module + ".weight", *own, search.weight());
  if (relation.id == "identical" || !search.good(residual)) return;
  out.push_back(
      {relation.id,
       fmt::format("reference: x W^T + b; yours: the same formula with your own weight, which is {}", relation.words),
       fmt::format("the files differ in {}.weight: convert it again", failing.module), "", r, residual, 0.6, 0,
       Blame::kWeights});
}

}  // namespace

void search_linear(Case& failing, Findings& out) {
  if (!failing.is_leaf || failing.role == Role::kInput || !failing.weights_r) return;
  const auto weight = failing.weight_r(failing.module + ".weight");
  if (!weight || weight->rank() != 2 || failing.r.last() != weight->shape[0]) return;
  for (const Item* input : input_items(failing, weight->shape[1])) {
    if (failing.reference_of(*input).rows() != failing.r.rows() ||
        failing.candidate_of(*input).rows() != failing.r.rows())
      continue;
    const Search search(failing, *input, *weight);
    double r = 0;
    if (!search.explains_reference(r)) continue;
    if (failing.note_local(search.with_reference())) return;
    const size_t before = out.size();
    search_given_weights(failing, search, r, out);
    search_bias(failing, search, r, out);
    search_own_weight(failing, search, r, out);
    if (out.size() == before) search_solved_bias(failing, search, r, out);
    if (out.size() == before) search_other_weights(failing, search, r, out);
    if (out.size() == before) search_solved(failing, search, r, out);
    return;
  }
}

bool confirm_linear(Case& failing) {
  const auto weight = failing.is_leaf ? failing.weight_r(failing.module + ".weight") : std::nullopt;
  if (!weight || weight->rank() != 2 || failing.r.last() != weight->shape[0]) return false;
  for (const Item* input : input_items(failing, weight->shape[1])) {
    if (failing.reference_of(*input).rows() != failing.r.rows() ||
        failing.candidate_of(*input).rows() != failing.r.rows())
      continue;
    const Search search(failing, *input, *weight);
    double r = 0;
    return search.explains_reference(r) && failing.explains(search.with_reference());
  }
  return false;
}

}  // namespace lockstep
