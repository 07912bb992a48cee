// Stages that make each row from one row: a linear layer, a look-up, a norm, a function of each element.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "diagnose/norm/norm_form.h"
#include "diagnose/replay/row_product.h"
#include "diagnose/replay/stage_graph.h"
#include "diagnose/search/functions.h"

namespace lockstep {
namespace {

constexpr int64_t kMostLinearWork = int64_t{1} << 29;
constexpr size_t kMostOtherWeights = 16;
constexpr int64_t kMostVectorParts = 12;                  // of a conditioning vector
constexpr int64_t kMostOtherElements = int64_t{1} << 25;  // of the other weights of one layer together
constexpr double kFarOff = 1e-2;                          // in a first look at a few elements

std::function<Flat(Sources)> each_element(size_t function) {
  return [function](Sources from) {
    Flat out(from[0]->size());
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(element_functions()[function].f((*from[0])[i]));
    return out;
  };
}

// The record that a module without parts of its own was given; SIZE_MAX where there are several, or none.
size_t only_input(const StageSources& in, size_t record) {
  const Structure& structure = in.failing().structure();
  const std::string& module = structure.site(record).module;
  if (in.run().records[record].role != Role::kOutput || module.empty() || structure.is_container(module))
    return SIZE_MAX;
  const auto given = structure.records_of(module, Role::kInput, record);
  return given.size() == 1 && given[0] < record && in.run().records[given[0]].load ? given[0] : SIZE_MAX;
}

// Weights of the same shape in the same layer: what a loader may have put in this one's place.
std::vector<std::string> weights_beside(const StageSources& in, const std::string& module, const Shape& shape) {
  std::vector<std::string> out;
  const auto& source = in.failing().weights_c ? in.failing().weights_c : in.failing().weights_r;
  std::string layer = parent_of(module);
  while (!layer.empty() && place_of_code(leaf_of(layer)) != "#") layer = parent_of(layer);
  if (layer.empty()) layer = module.substr(0, module.find('.'));  // no list of layers: all of the model
  if (!source) return out;
  const size_t most = std::min(kMostOtherWeights, static_cast<size_t>(kMostOtherElements / checked_numel(shape)));
  const auto& shapes = source->shapes();
  for (auto it = shapes.lower_bound(layer + "."); it != shapes.end() && it->first.starts_with(layer + "."); ++it)
    if (it->second == shape && it->first != module + ".weight" && it->first.ends_with(".weight") && out.size() < most)
      out.push_back(it->first);
  return out;
}

struct NormForm {
  size_t span = 1;  // elements normed together
  NormParams params;
  std::vector<float> weight, bias;

  Flat operator()(Sources from) const {
    const Flat& x = *from[0];
    Flat out(x.size());
    std::vector<double> row(span);
    for (size_t at = 0; at + span <= x.size(); at += span) {
      std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(at), span, row.begin());
      if (params.kind != NormKind::kNone) normalise(row.data(), static_cast<int64_t>(span), 1, params);
      for (size_t i = 0; i < span; ++i) {
        if (!weight.empty()) row[i] *= weight[i % weight.size()];
        if (!bias.empty()) row[i] += bias[i % bias.size()];
        out[at + i] = static_cast<float>(row[i]);
      }
    }
    return out;
  }
};

void add_norm_edits(const std::string& module, const NormForm& norm, std::vector<StageEdit>& out) {
  const char* own = kind_name(norm.params.kind);
  const auto add = [&](Cause cause, std::string yours, std::string fix, double complexity, auto&& change) {
    NormForm other = norm;
    change(other);
    out.push_back({cause, std::move(yours), std::move(fix), complexity, other});
  };
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms, NormKind::kUnit, NormKind::kCentred, NormKind::kSample,
                              NormKind::kMeanAbs, NormKind::kMeanKept, NormKind::kCentredRms})
    if (kind != norm.params.kind)
      add("norm.kind", fmt::format("{}(x)", kind_name(kind)), fmt::format("use {}", own),
          kind == NormKind::kLayer || kind == NormKind::kRms ? 0.8 : 0.9,  // models have these two
          [&](NormForm& n) { n.params.kind = kind; });
  add("norm.missing", "x", fmt::format("apply {}", module), 0.8,
      [](NormForm& n) { n.params.kind = NormKind::kNone, n.weight.clear(), n.bias.clear(); });
  for (const double wrong : {1e-5, 1e-6, 1e-3, 1e-4, 1e-8, 1e-12, 0.0, 1e-2, 1e-1, 1.0})
    if (wrong != norm.params.eps)
      add("norm.eps", fmt::format("{}(x) with eps {:g}", own, wrong), fmt::format("use eps {:g}", norm.params.eps), 0.8,
          [&](NormForm& n) { n.params.eps = wrong; });
  add("norm.eps", fmt::format("{}(x) with eps outside the root", own), "add eps under the root", 0.9,
      [](NormForm& n) { n.params.eps_outside = true; });
  for (const NumberFormat& format : half_formats())
    for (const auto held : {&NormParams::squares, &NormParams::factor})
      add(format.cause, fmt::format("{}(x) computed in {}", own, format.name), "normalise in f32 and cast afterwards",
          0.9, [&](NormForm& n) { n.params.*held = &format; });
  if (norm.weight.empty()) return;
  add("norm.weight_missing", fmt::format("{}(x) without its weight", own), fmt::format("multiply by {}.weight", module),
      0.8, [](NormForm& n) { n.weight.clear(); });
  add("norm.one_plus_weight", fmt::format("{}(x) times (1 + weight)", own),
      fmt::format("multiply by {}.weight itself", module), 0.8, [](NormForm& n) {
        for (float& w : n.weight) w += 1;
      });
}

// A vector that is cut into shifts, scales and gates: all who use it take other parts of it.
void add_part_edits(const std::function<Flat(Sources)>& own, size_t parts, std::vector<StageEdit>& out) {
  const auto add = [&](Cause cause, std::string yours, std::string fix, const std::vector<size_t>& order) {
    out.push_back({cause, std::move(yours), std::move(fix), 0.85, [=](Sources from) {
                     const Flat made = own(from);
                     const size_t width = made.size() / parts;
                     Flat moved(made.size());
                     for (size_t i = 0; i < moved.size(); ++i) moved[i] = made[order[i / width] * width + i % width];
                     return moved;
                   }});
  };
  std::vector<size_t> order(parts);
  const size_t half = parts / 2, of_one = parts % 3 == 0 ? 3 : 2;
  if (parts % of_one == 0 && parts > 1) {  // (shift, scale, gate) or (shift, scale), once or twice
    for (size_t i = 0; i < parts; ++i) order[i] = i % of_one == 0 ? i + 1 : i % of_one == 1 ? i - 1 : i;
    add("modulate.shift_scale_exchanged", "its first and second part exchanged, wherever they are used",
        "exchange shift and scale", order);
  }
  if (parts % 2 == 0 && parts > 2) {
    for (size_t i = 0; i < parts; ++i) order[i] = (i + half) % parts;
    add("modulate.other_part", "its two halves exchanged, wherever they are used",
        "take the first half for what comes first", order);
  }
}

}  // namespace

std::optional<Stage> find_linear(StageSources& in, size_t record) {
  const size_t input = only_input(in, record);
  if (input == SIZE_MAX || in.size(input) == 0) return std::nullopt;
  const std::string& module = in.failing().structure().site(record).module;
  const auto w = in.weight(module + ".weight");
  if (!w || w->rank() != 2) return std::nullopt;
  const int64_t n = w->shape[0], k = w->shape[1], rows = in.size(input) / k;
  if (in.width(input) != k || rows * n != in.size(record) || rows * n * k > kMostLinearWork) return std::nullopt;
  const auto of_bias = in.weight(module + ".bias");
  const Flat b = of_bias ? of_bias->v : Flat();
  const auto with = [](std::shared_ptr<const Values> matrix, Flat bias) {
    return [=](Sources from) { return row_product(*from[0], *matrix, bias); };
  };
  Stage out{.from = {input},
            .kind = "linear",
            .place = "",
            .formula = fmt::format("{}(x)", module),
            .apply = with(w, b),
            .work = rows * n * k};
  const Flat* given[] = {&in.values(input)};
  if (!in.explains(flat_distance(out.apply(given), in.values(record)))) return std::nullopt;
  if (!b.empty())
    out.edits.push_back({"linear.bias_missing", "x W^T", fmt::format("add {}.bias", module), 0.8, with(w, {})});
  if (n == k)
    out.edits.push_back({"linear.transposed_weight", "x W + b", fmt::format("transpose {}.weight", module), 0.8,
                         with(std::make_shared<const Values>(permuted(*w, {1, 0})), b), Blame::kWeights});
  if (rows == 1 && n % k == 0 && n / k <= kMostVectorParts)
    add_part_edits(with(w, b), static_cast<size_t>(n / k), out.edits);
  for (const std::string& name : weights_beside(in, module, w->shape)) {
    const auto matrix = in.weight(name);
    if (!matrix) continue;
    const std::string layer = parent_of(name);
    const auto their_bias = in.weight(layer + ".bias");
    const std::string yours = fmt::format("x W^T with {}", name), fix = fmt::format("load {}.weight", module);
    out.edits.push_back({"linear.other_weight", yours, fix, 0.85, with(matrix, b), Blame::kWeights});
    if (!b.empty() && their_bias && their_bias->v.size() == b.size())
      out.edits.push_back(
          {"linear.other_weight", yours + " and its bias", fix, 0.86, with(matrix, their_bias->v), Blame::kWeights});
  }
  out.edits.push_back({"stage.replaced", "x: the layer is skipped", fmt::format("apply {}", module), 0.9,
                       [=](Sources from) { return n == k ? *from[0] : Flat(); }});
  return out;
}

std::optional<Stage> find_embedding(StageSources& in, size_t record) {
  const Structure& structure = in.failing().structure();
  const std::string& module = structure.site(record).module;
  if (in.run().records[record].role != Role::kOutput || module.empty() || structure.is_container(module))
    return std::nullopt;
  const auto rows = in.weight(module + ".weight");
  const auto given = structure.records_of(module, Role::kInput, record);
  if (!rows || rows->rank() != 2 || given.size() != 1 || given[0] > record) return std::nullopt;
  const RecordedTensor& ids = in.run().records[given[0]];
  const int64_t width = rows->last();
  if (!ids.load || is_floating(ids.dtype) || checked_numel(ids.shape) * width != in.size(record)) return std::nullopt;
  // Ids of so small a vocabulary are exact as floats.
  const auto look_up = [rows](int shift, float factor) {
    return [=](Sources from) {
      Flat out;
      for (const float id : *from[0]) {
        const int64_t at = static_cast<int64_t>(id) + shift;
        if (at < 0 || at >= rows->rows()) return Flat();
        for (const float value : rows->row(at)) out.push_back(factor * value);
      }
      return out;
    };
  };
  Stage out{.from = {given[0]}, .kind = "embedding", .place = "", .formula = module + "[ids]", .apply = look_up(0, 1)};
  const Flat* values[] = {&in.values(given[0])};
  if (!in.explains(flat_distance(out.apply(values), in.values(record)))) return std::nullopt;
  for (const int shift : {1, -1})
    out.edits.push_back({"embedding.offset", fmt::format("{}[ids {:+}]", module, shift), "use the ids as they are", 0.9,
                         look_up(shift, 1)});
  out.numbers.push_back(
      {"affine.scale", fmt::format("{}[ids] times", module), "remove the factor",
       [look_up](Sources from, double factor) { return look_up(0, static_cast<float>(factor))(from); }});
  const double root = std::sqrt(static_cast<double>(width));
  for (const auto& [factor, words] : {std::pair{root, "sqrt"}, {1 / root, "1/sqrt"}})
    out.edits.push_back({"affine.scale", fmt::format("{}[ids] times {}({})", module, words, width), "remove the factor",
                         0.85, look_up(0, static_cast<float>(factor))});
  return out;
}

std::optional<Stage> find_norm(StageSources& in, size_t record) {
  const std::string& module = in.failing().structure().site(record).module;
  const size_t input = only_input(in, record);
  const int64_t last = in.width(record);
  NormForm norm;
  norm.span = static_cast<size_t>(last);
  for (const char* name : {".weight", ".gamma"})
    if (const auto weight = in.weight(module + name); weight && weight->size() == last && !norm.weight.size())
      norm.weight = weight->v;
  if (const auto bias = in.weight(module + ".bias"); bias && bias->size() == last) norm.bias = bias->v;
  if (input == SIZE_MAX || in.size(input) != in.size(record) || last < 2) return std::nullopt;
  const Flat &x = in.values(input), &y = in.values(record);
  for (const NormKind kind : {NormKind::kLayer, NormKind::kRms, NormKind::kUnit})
    for (const double eps : {1e-6, 1e-5, 1e-8, 1e-12}) {
      norm.params.kind = kind, norm.params.eps = eps;
      const Flat* given[] = {&x};
      if (!in.explains(flat_distance(norm(given), y))) continue;
      Stage out{.from = {input},
                .kind = "norm",
                .place = "",
                .formula = fmt::format("{}(x)", kind_name(kind)),
                .apply = norm,
                .work = 8 * kElementWork * in.size(record)};
      add_norm_edits(module, norm, out.edits);
      if (!norm.weight.empty())
        for (const std::string& name : weights_beside(in, module, {last}))
          if (const auto weight = in.weight(name)) {
            NormForm other = norm;
            other.weight = weight->v;
            out.edits.push_back({"norm.other_weight", fmt::format("{}(x) times {}", kind_name(kind), name),
                                 fmt::format("load {}.weight", module), 0.85, other, Blame::kWeights});
          }
      out.numbers.push_back({"norm.eps", fmt::format("{}(x) with eps", kind_name(kind)),
                             fmt::format("use eps {:g}", eps), [norm](Sources from, double wrong) {
                               NormForm other = norm;
                               other.params.eps = wrong;
                               return other(from);
                             }});
      return out;
    }
  return std::nullopt;
}

std::optional<FunctionOf> function_of(StageSources& in, size_t record) {
  const auto functions = element_functions();
  const Flat& y = in.values(record);
  for (const size_t source : in.near(record, in.size(record))) {
    const Flat& x = in.values(source);
    const Flat few_x(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(x.size(), 64)));
    const Flat few_y(y.begin(), y.begin() + static_cast<std::ptrdiff_t>(few_x.size()));
    const Flat *few[] = {&few_x}, *all[] = {&x};
    for (size_t f = 1; f < functions.size(); ++f)
      if (flat_distance(each_element(f)(few), few_y) < kFarOff && in.explains(flat_distance(each_element(f)(all), y)))
        return FunctionOf{source, f};
  }
  return std::nullopt;
}

std::optional<Stage> find_function(StageSources& in, size_t record) {
  const auto functions = element_functions();
  const auto found = function_of(in, record);
  if (!found) return std::nullopt;
  const size_t f = found->function;
  Stage out{.from = {found->source},
            .kind = "function",
            .place = "",
            .formula = fmt::format("{} with x = {}", functions[f].name, in.name(found->source)),
            .apply = each_element(f),
            .work = kFunctionWork * in.size(record)};
  for (size_t g = 0; g < functions.size(); ++g)
    if (g != f && (g == 0 || functions[g].is_activation))
      out.edits.push_back({g == 0 ? Cause("activation.missing") : Cause("activation.kind"), functions[g].name,
                           fmt::format("apply {}", functions[f].name), g == 0 ? 0.9 : 0.8, each_element(g)});
  return out;
}

}  // namespace lockstep
