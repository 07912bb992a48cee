// y = x W^T + b: which weight, how it lies, whether the bias is there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/case/thresholds.h"
#include "diagnose/linear/inverse_linear.h"
#include "diagnose/linear/linear_calls.h"
#include "diagnose/linear/linear_report.h"
#include "diagnose/search/number_formats.h"
#include "diagnose/weight/kept_angles.h"
#include "diagnose/weight/weight_levels.h"
#include "diagnose/weight/weight_nearness.h"
#include "diagnose/weight/weight_relation.h"
#include "measure/residual.h"
#include "measure/small_solve.h"

namespace lockstep {
namespace {

constexpr int64_t kProbeColumns = 64, kMostLoads = 40, kLargeWeight = int64_t{1} << 20, kMostSolved = 512;

void search_bias(Case& failing, const LinearProbe& search, const LinearReport& report) {
  if (search.bias()) {
    const double without = search.candidate(search.weight(), nullptr);
    if (search.good(without))
      report.add("linear.bias_missing", "x W^T", fmt::format("add {}.bias", failing.module), without, 0.7,
                 Blame::kNone);
    std::vector<float> twice = *search.bias();
    for (float& value : twice) value *= 2;
    const double doubled = search.candidate(search.weight(), &twice);
    if (search.good(doubled))
      report.add("linear.bias_doubled", "x W^T + 2 b", "add the bias once", doubled, 0.7, Blame::kNone);
    double residual = 0;
    const Format format = first_fitting(number_formats(), [&](const NumberFormat& next) {
      const Values poorer = in_format(Values{{}, *search.bias()}, &next);
      return search.good(residual = search.candidate(search.weight(), &poorer.v));
    });
    if (format) {
      report.add("linear.different_bias", fmt::format("x W^T + b with b in {}", format->name),
                 "keep the bias in its own dtype", residual, 0.7);
      return;
    }
  }
  size_t loads = 0;
  for (const auto& [name, shape] : failing.weights_r->shapes()) {
    if (shape.size() != 1 || shape[0] != search.weight().shape[0] || name == failing.module + ".bias" || ++loads > 400)
      continue;
    const auto other = failing.weight_r(name);
    if (!other) continue;
    if (const double residual = search.candidate(search.weight(), &other->v); search.good(residual)) {
      report.add("linear.other_bias", "x W^T + " + name, fmt::format("load {}.bias here", failing.module), residual,
                 0.7);
      return;
    }
  }
}

void search_solved_bias(Case& failing, const LinearProbe& search, const LinearReport& report) {
  if (search.rows() < 4) return;
  const std::vector<float> own = search.own_bias();
  const double residual = search.candidate(search.weight(), &own);
  if (search.good(residual))
    report.add("linear.different_bias", "x W^T plus another vector, which is no bias of the checkpoint",
               fmt::format("compare the loaded {}.bias with the file", failing.module), residual, 0.9);
}

struct OtherWeight {
  Values rows;              // those that are looked at
  std::vector<float> bias;  // empty: none of its own
  std::string words;
};

// A weight of the checkpoint as this layer could hold it: whole, transposed, or one of the parts of a fused one.
std::vector<OtherWeight> parts_of(const Values& other, const std::vector<float>* bias, const Shape& own,
                                  const std::vector<int64_t>& looked_at) {
  std::vector<OtherWeight> out;
  const auto bias_from = [&](int64_t first) {
    if (!bias || static_cast<int64_t>(bias->size()) != other.shape[0]) return std::vector<float>();
    return std::vector<float>(bias->begin() + first, bias->begin() + first + own[0]);
  };
  if (other.shape[1] == own[1] && other.shape[0] % own[0] == 0) {
    const int64_t parts = other.shape[0] / own[0];
    for (int64_t part = 0; part < parts; ++part) {
      std::vector<int64_t> rows = looked_at;
      for (int64_t& row : rows) row += part * own[0];
      out.push_back({take_rows(other, rows), bias_from(part * own[0]),
                     parts == 1 ? "" : fmt::format(", part {} of {}", part + 1, parts)});
    }
  }
  if (other.shape[0] == own[1] && other.shape[1] == own[0]) {
    OtherWeight turned{make_values({static_cast<int64_t>(looked_at.size()), own[1]}), {}, ", transposed"};
    for (size_t k = 0; k < looked_at.size(); ++k)
      for (int64_t i = 0; i < own[1]; ++i)
        turned.rows.row(static_cast<int64_t>(k))[static_cast<size_t>(i)] =
            other.row(i)[static_cast<size_t>(looked_at[k])];
    out.push_back(std::move(turned));
  }
  return out;
}

void search_other_weights(Case& failing, const LinearProbe& search, const LinearReport& report) {
  // Its neighbours and the same projection in other layers first: reading a checkpoint costs.
  const Shape &own = search.weight().shape, turned{own[1], own[0]};
  std::vector<std::string> names;
  for (const auto& [name, shape] : failing.weights_r->shapes()) {
    const bool holds = shape.size() == 2 && shape[1] == own[1] && shape[0] > own[0] && shape[0] % own[0] == 0;
    if ((shape == own || shape == turned || holds) && name != failing.module + ".weight") names.push_back(name);
  }
  sort_by_nearness(names, failing.module + ".weight");
  const int64_t loads = std::clamp(kMostLoads * kLargeWeight / std::max<int64_t>(1, own[0] * own[1]), kMostLoads,
                                   10 * kMostLoads);  // reading small ones costs little
  if (static_cast<int64_t>(names.size()) > loads) names.resize(static_cast<size_t>(loads));
  for (const std::string& name : names) {
    const auto other = failing.weight_r(name);
    if (!other) continue;
    const auto other_bias = failing.weight_r(parent_of(name) + ".bias");
    for (const OtherWeight& part : parts_of(*other, other_bias ? &other_bias->v : nullptr, own, search.columns())) {
      for (const std::vector<float>* bias : {part.bias.empty() ? search.bias() : &part.bias, search.bias()}) {
        const double residual = search.candidate_rows(part.rows, bias);
        if (!search.good(residual)) continue;
        report.add("linear.other_weight", fmt::format("the same with W = {}{}", name, part.words),
                   fmt::format("load {}.weight here: the index of the layer or the name of the projection is off",
                               failing.module),
                   residual, part.words.empty() ? 0.7 : 0.9);
        return;
      }
    }
  }
}

// Rows of all calls of the module; the weight is then what maps its inputs to its outputs.
std::optional<Values> solved_weight(Case& failing, int64_t inputs, int64_t outputs, double& residual) {
  if (inputs > kMostSolved) return std::nullopt;
  const CallRows rows = recorded_rows(failing, inputs, outputs, 8 * inputs);
  const size_t n = static_cast<size_t>(inputs) + 1, m = static_cast<size_t>(outputs);
  if (static_cast<int64_t>(rows.x.size()) < inputs + 1 + inputs / 8) return std::nullopt;
  std::vector<double> gram(n * n), right(n * m);
  for (size_t row = 0; row < rows.x.size(); ++row) {
    std::vector<double> in(n, 1);
    for (size_t k = 0; k + 1 < n; ++k) in[k] = rows.x[row][k];
    for (size_t a = 0; a < n; ++a) {
      for (size_t b = 0; b <= a; ++b) gram[a * n + b] += in[a] * in[b];
      for (size_t j = 0; j < m; ++j) right[a * m + j] += in[a] * rows.y[row][j];
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
  Residual unexplained;
  for (size_t row = 0; row < rows.x.size(); ++row)
    for (const int64_t j : sample_indices(outputs, kProbeColumns)) {
      const double y = rows.y[row][static_cast<size_t>(j)];
      unexplained.add(bias[static_cast<size_t>(j)] + dot(rows.x[row], w.row(j)), y);
    }
  residual = unexplained.relative();
  return w;
}

// The same numbers, each as often, in each row or over the whole. Two draws of one law differ by more than this.
bool holds_the_same_numbers(const Values& solved, const Values& right) {
  const auto alike = [](std::vector<float> a, std::vector<float> b) {
    std::sort(a.begin(), a.end()), std::sort(b.begin(), b.end());
    return relative_error(a, b) < std::min(0.02, 0.2 / std::sqrt(static_cast<double>(a.size())));
  };
  if (alike(solved.v, right.v)) return true;
  for (const int64_t j : sample_indices(right.rows(), kProbeColumns))
    if (!alike({solved.row(j).begin(), solved.row(j).end()}, {right.row(j).begin(), right.row(j).end()})) return false;
  return right.last() >= 16;
}

std::string never_loaded(const Case& failing) {
  return fmt::format("{}.weight was never loaded: check its name in the loader", failing.module);
}

void search_solved(Case& failing, const LinearProbe& search, const LinearReport& report) {
  double residual = INFINITY;
  const auto solved = solved_weight(failing, search.weight().shape[1], search.weight().shape[0], residual);
  if (!solved || residual > std::max(50 * failing.tolerance, 1e-3)) return;
  const WeightRelation relation = relate_weights(failing.module + ".weight", *solved, search.weight());
  // A solved weight has noise of its own: only what stands out is said.
  // Rows that are each related to their own, by a sign or a factor, are not drawn at random.
  double related = 0;
  for (int64_t j = 0; j < solved->shape[0]; ++j)
    related += std::fabs(correlation(solved->row(j), search.weight().row(j))) / static_cast<double>(solved->shape[0]);
  const bool moved = related < 0.5 && holds_the_same_numbers(*solved, search.weight());
  const bool random = relation.id == "weights.random" && related < 0.5 && !moved;
  const double left = std::min(residual, failing.tolerance);
  if (related > kQuantisedRelated)
    if (const auto few = find_few_levels(*solved, kSolvedNoise)) {
      report.add("linear.weight_quantised", "linear in x too, with a weight that takes " + few->words,
                 "expected when the candidate is quantised; else load the full weight", left, 1.8);
      return;
    }
  const bool turned = relation.id == "weights.transposed";
  if (turned || relation.id == "weights.rearranged" || relation.id == "weights.parts_exchanged")
    report.add(turned ? Cause("linear.transposed_weight") : Cause("linear.input_parts_exchanged"),
               "the same with W's " + relation.words,
               "bring the weight, or what it is applied to, into the reference's order", left, 2);
  if (random)
    report.add("linear.random_weight",
               fmt::format("linear in x too, but with a weight that is none of the checkpoint's ({})", relation.words),
               never_loaded(failing), left, 2.2);
  else
    report.add("linear.different_weight",
               fmt::format("linear in x too, but with {}",
                           moved ? "W's numbers in another order" : "a weight that is none of the checkpoint's"),
               fmt::format("compare the loaded {}.weight with the file (lockstep weights compare)", failing.module),
               left, 2.2);
}

// Too few rows to solve for the weight. One drawn at random had a bias drawn with it, or none of its own.
void search_random_projection(Case& failing, const LinearProbe& search, const LinearReport& report) {
  if (std::fabs(correlation(failing.c.v, failing.r.v)) > 0.3) return;
  const int64_t outputs = search.weight().shape[0];
  const Values y = search.without_bias(sample_indices(outputs, outputs));
  auto angles = kept_angles(search.input(), y, false);
  if (!angles) angles = kept_angles(search.input(), y, true);
  if (angles)
    report.add("linear.random_weight",
               fmt::format("keeps the angles between the rows of x as a weight drawn at random does ({})", *angles),
               never_loaded(failing), failing.tolerance, 2.2);
}

// What was not recorded may be what is wrong, and an input in another order keeps the angles too. Under the right
// weight such an input is of the right size; what a foreign weight made is blown up on the way back.
bool could_be_the_input(Case& failing, const LinearProbe& search, const Item& input) {
  const InverseLinear inverse({&search.weight()});
  if (!inverse.usable()) return false;
  Values product = reshaped(failing.c, {failing.c.rows(), failing.c.last()});
  for (int64_t i = 0; i < product.rows() && search.bias(); ++i)
    for (size_t j = 0; j < search.bias()->size(); ++j) product.row(i)[j] -= (*search.bias())[j];
  const Values x = inverse.input_of({&product});
  const int64_t outputs = search.weight().rows();
  const std::vector<int64_t> rows = sample_indices(x.rows(), 24);
  // More outputs than inputs: under the right weight they agree on one input.
  if (outputs > search.weight().last() &&
      linear_misfit(take_rows(x, rows), take_rows(product, rows), search.weight(),
                    std::vector<float>(static_cast<size_t>(outputs)), sample_indices(outputs, kProbeColumns)) > 0.1)
    return false;
  return rms(x.v) < 2 * rms(failing.reference_of(input).v);
}

void search_given_weights(Case& failing, const LinearProbe& search, const LinearReport& report) {
  if (!failing.weights_c) return;
  const auto own = failing.weights_c->find(failing.module + ".weight");
  const auto own_bias = failing.weights_c->find(failing.module + ".bias");
  if (!own) {
    if (!failing.weights_c->shapes().empty())
      report.add("weights.missing", "your checkpoint has no weight of that name",
                 "load it: an unloaded weight keeps its initial values", failing.tolerance, 1.5);
    return;
  }
  const double residual = search.candidate(*own, own_bias ? &own_bias->v : nullptr);
  const WeightRelation relation = relate_weights(failing.module + ".weight", *own, search.weight());
  if (relation.id && search.good(residual))
    report.add(relation.id, "the same formula with your own weight, which is " + relation.words,
               fmt::format("the files differ in {}.weight: convert it again", failing.module), residual, 0.6);
}

}  // namespace

void search_linear(Case& failing, Findings& out) {
  if (!failing.is_leaf || failing.role == Role::kInput || !failing.weights_r) return;
  auto weight = failing.weight_r(failing.module + ".weight");
  if (!weight || weight->rank() != 2 || failing.r.last() != weight->shape[0]) return;
  const Format held_in = format_of(failing.reference_run().records[failing.reference_record()].dtype);
  if (held_in) weight = in_format(std::move(*weight), held_in);
  for (const Item* input : input_items(failing, weight->shape[1])) {
    if (failing.reference_of(*input).rows() != failing.r.rows() ||
        failing.candidate_of(*input).rows() != failing.r.rows())
      continue;
    const LinearProbe search(failing, *input, *weight, held_in);
    double r = 0;
    if (!search.explains_reference(r)) continue;
    if (failing.note_local(search.with_reference())) return;
    const size_t before = out.size();
    // Where rounding is coarse, much is met by what is only near: the search goes on until as little is left as the
    // reference leaves.
    const double near = held_in ? std::max(kNearReference * r, 2e-5) : INFINITY;
    const auto unexplained = [&] {
      return std::none_of(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(),
                          [&](const Finding& f) { return f.residual <= near; });
    };
    const LinearReport report(search, r, out);
    search_given_weights(failing, search, report);
    search_bias(failing, search, report);
    if (unexplained()) search_solved_bias(failing, search, report);
    if (unexplained()) search_changed_weight(search, report, out);
    if (unexplained()) search_other_weights(failing, search, report);
    if (unexplained()) search_changed_input(search, report);
    if (unexplained()) search_rows_elsewhere(search, report);
    if (out.size() == before) search_solved(failing, search, report);
    if (out.size() == before && !(input->assumed && could_be_the_input(failing, search, *input)))
      search_random_projection(failing, search, report);
    for (size_t i = before; i < out.size() && !unexplained(); ++i)
      if (out[i].residual > near) out[i].complexity += 1;
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
    const LinearProbe search(failing, *input, *weight);
    double r = 0;
    return search.explains_reference(r) && failing.explains(search.with_reference());
  }
  return false;
}

}  // namespace lockstep
