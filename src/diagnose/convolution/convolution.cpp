// y = conv(x, W) + b over a single frame. The edits are the kernel's memory and orientation, taps of time, border,
// seams between tiles, order and precision of the input, bias, whose weight; alone and in pairs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "diagnose/case/thresholds.h"
#include "diagnose/convolution/convolution_probe.h"
#include "diagnose/layout/layouts.h"
#include "diagnose/weight/weight_forms.h"
#include "diagnose/weight/weight_memory.h"
#include "diagnose/weight/weight_nearness.h"
#include "measure/line_fit.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr size_t kMostOtherWeights = 80, kMostOtherBiases = 200;
constexpr int64_t kMostConvForms = 20000;  // forms

std::string formula(const ConvParams& p, const ConvProbe& probe) {
  std::string out = p.weight.empty() ? "conv(x, W)" : "conv(x, " + p.weight + ")";
  if (p.bias) out += p.bias > 1 ? " + 2 b" : " + b";
  if (!p.memory.plain()) out += ", " + p.memory.words();
  if (p.dilation > 1) out += fmt::format(", dilation {}", p.dilation);
  if (p.order) out += ", " + probe.channel_orders()[static_cast<size_t>(p.order)].words;
  if (p.middle) out += ", the middle tap alone";
  for (const auto& [format, what] : {std::pair{p.kernel, "W"}, {p.added, "b"}, {p.input, "x"}})
    if (format) out += fmt::format(", {} in {}", what, format->name);
  if (p.before) out += fmt::format(", {} of the input", p.before->name);
  if (p.taps) {
    std::string taps;
    for (int64_t t = 0; t < probe.geometry().taps; ++t)
      if (p.taps >> t & 1) taps += (taps.empty() ? "" : " + ") + std::to_string(t);
    out += fmt::format(", temporal tap {}{}", taps, p.taps_average ? ", averaged" : "");
  }
  if (p.flip_rows || p.flip_columns) out += ", kernel mirrored";
  if (p.swap_rows_columns) out += ", kernel rows and columns exchanged";
  if (p.transposed) out += ", in and out channels exchanged";
  if (p.border == Border::kReplicate) out += ", border repeated";
  if (p.border == Border::kReflect) out += ", border mirrored";
  if (p.border == Border::kCircular) out += ", border wrapped around";
  for (const auto& [seams, what] : {std::pair{&p.seams_rows, "row"}, {&p.seams_columns, "column"}})
    for (const int64_t seam : *seams) out += fmt::format(", in tiles that meet at {} {}", what, seam);
  return out + fmt::format(" (stride {}, {} rows and {} columns before)", p.stride, p.top, p.left);
}

// Of a reference: a stride, and what is padded in front.
std::vector<ConvParams> conv_forms(const ConvProbe& probe, const Values& x, const Values& y) {
  std::vector<ConvParams> out;
  const ConvProbe::Geometry& g = probe.geometry();
  const auto add = [&](int64_t stride, int64_t top, int64_t left) {
    if (y.dim(-2) > (x.dim(-2) + 2 * top) / stride + 1) return;
    ConvParams& p = out.emplace_back();
    p.stride = stride, p.top = top, p.left = left;
    p.bias = probe.bias().empty() ? 0 : 1;
  };
  for (const int64_t stride : {1, 2})
    for (int64_t top = 0; top <= g.rows / 2; ++top) add(stride, top, g.columns == g.rows ? top : g.columns / 2);
  if (g.columns > 2) add(g.columns, 0, 0);  // patches that do not overlap
  if (g.rows == 1 && g.columns > 1)         // a sequence: without a border, or the past alone
    for (const int64_t stride : {1, 2})
      for (const int64_t left : {int64_t{0}, g.columns - 1}) add(stride, 0, left);
  return out;
}

// Orders of axes that differ where an axis of 1 does not hide it.
std::vector<KernelMemory> memories(const ConvProbe::Geometry& g) {
  std::vector<KernelMemory> out;
  const std::array<int64_t, 5> size = g.axes();
  std::set<std::vector<int>> seen;
  KernelMemory memory;
  do {
    std::vector<int> real;
    for (const int axis : memory.axes)
      if (size[static_cast<size_t>(axis)] > 1) real.push_back(axis);
    if (std::is_sorted(real.begin(), real.end()) || !seen.insert(real).second) continue;
    for (const bool read : {true, false}) {
      memory.read = read;
      out.push_back(memory);
    }
  } while (std::next_permutation(memory.axes.begin(), memory.axes.end()));
  return out;
}

// Memory as other libraries keep it: what a second mistake may come with.
bool is_usual(const KernelMemory& memory) {
  using Axes = std::array<int, 5>;
  return memory.read && (memory.axes == Axes{0, 2, 3, 4, 1} || memory.axes == Axes{2, 3, 4, 1, 0} ||
                         memory.axes == Axes{1, 0, 2, 3, 4} || memory.axes == Axes{0, 1, 3, 4, 2});
}

// Edits that exclude each other have one kind; the likelier of two that fit alike stands first.
std::vector<Edit<ConvParams>> conv_edits(const ConvParams& r, const ConvProbe& probe) {
  const ConvProbe::Geometry& g = probe.geometry();
  std::vector<Edit<ConvParams>> out;
  int kind = 0;
  const auto add = [&](const EditName& name, auto&& apply, bool pairs = true) {
    out.push_back({name, apply, kind, pairs});
  };
  const auto pad = [&](int64_t top, int64_t left, bool pairs) {
    if (top == r.top && left == r.left) return;
    add(
        {"convolution.padding",
         fmt::format("pad {} rows and {} columns in front, not {} and {}", r.top, r.left, top, left)},
        [=](ConvParams& p) { p.top = top, p.left = left; }, pairs);
  };
  ++kind;
  const EditName mirrored{"convolution.kernel_mirrored", "do not mirror the kernel: layers compute a correlation"};
  add(mirrored, [](ConvParams& p) { p.flip_rows = p.flip_columns = true; });
  add(mirrored, [](ConvParams& p) { p.flip_rows = true; });
  add(mirrored, [](ConvParams& p) { p.flip_columns = true; });
  ++kind;
  if (g.rows == g.columns && g.rows > 1)
    add({"convolution.kernel_axes",
         "the kernel's rows and columns are exchanged: permute the weight as the library wants it"},
        [](ConvParams& p) { p.swap_rows_columns = true; });
  ++kind;
  if (g.in == g.out)
    add({"convolution.transposed_weight", "in and out channels of the weight are exchanged", Blame::kWeights},
        [](ConvParams& p) { p.transposed = true; });
  ++kind;
  if (g.taps > 1 && g.taps < 6) {
    const EditName tap{"convolution.temporal_tap",
                       "for one frame use the newest (last) temporal tap of the kernel alone"};
    for (unsigned taps = 1; taps < 1u << g.taps; ++taps)
      if (taps != 1u << (g.taps - 1)) add(tap, [=](ConvParams& p) { p.taps = taps; });
    add(tap, [=](ConvParams& p) { p.taps = (1u << g.taps) - 1, p.taps_average = true; });
  }
  ++kind;
  if (g.rows > 1 || g.columns > 1)
    for (const Border border : {Border::kReplicate, Border::kReflect, Border::kCircular})
      add({"convolution.padding", "pad the border as the reference does"}, [=](ConvParams& p) { p.border = border; });
  ++kind;
  for (int64_t top = 0; top < g.rows; ++top)
    for (int64_t left = 0; left < g.columns; ++left) pad(top, left, true);
  if (g.rows > 1) {
    for (const int64_t shift : {-1, 1})
      pad(r.top + shift * g.rows, r.left, false), pad(r.top, r.left + shift * g.columns, false);
    add({"convolution.kernel_size", "apply the whole kernel"}, [](ConvParams& p) { p.middle = true; });
    ++kind;
    add({"convolution.dilation", "do not dilate the kernel"}, [](ConvParams& p) { p.dilation = 2; });
  }
  ++kind;
  if (r.stride == 1)
    if (const auto rows = probe.seams(false), columns = probe.seams(true); !rows.empty() || !columns.empty())
      add({"convolution.padding",
           "tiles need the pixels of their neighbours, not a border of their own: let them overlap"},
          [=](ConvParams& p) { p.seams_rows = rows, p.seams_columns = columns; });
  ++kind;
  if (r.bias) {
    add({"convolution.bias_missing", "add the bias once"}, [](ConvParams& p) { p.bias = 0; });
    add({"convolution.bias_doubled", "add the bias once"}, [](ConvParams& p) { p.bias = 2; });
  }
  ++kind;
  for (const KernelMemory& memory : memories(g))
    add(
        {"convolution.kernel_axes", "permute the weight's axes as the library wants them, do not only rename them"},
        [=](ConvParams& p) { p.memory = memory; }, is_usual(memory));
  ++kind;
  for (size_t order = 1; order < probe.channel_orders().size(); ++order)
    add(
        {"convolution.input_order", "the channels of the input are in another order"},
        [=](ConvParams& p) { p.order = static_cast<int>(order); }, order < 4);
  ++kind;
  for (const ElementFunction& function : element_functions().subspan(1))
    if (function.is_activation)
      add(
          {"activation.added", fmt::format("remove {} before this layer", function.name)},
          [&](ConvParams& p) { p.before = &function; }, false);
  ++kind;
  for (const NumberFormat& format : number_formats()) {
    const EditName rounded{"convolution.weight_rounded", {}, Blame::kWeights},
        cast{format.cause, "do not cast the input of this layer"};
    add(
        rounded, [&](ConvParams& p) { p.kernel = &format; }, false);
    add(
        rounded, [&](ConvParams& p) { p.kernel = p.added = &format; }, false);
    add(
        {"convolution.different_bias", "keep the bias in its own dtype", Blame::kWeights},
        [&](ConvParams& p) { p.added = &format; }, false);
    add(
        cast, [&](ConvParams& p) { p.input = &format; }, false);
    add(
        cast, [&](ConvParams& p) { p.input = p.kernel = &format; }, false);
    add(
        cast, [&](ConvParams& p) { p.input = p.kernel = p.added = &format; }, false);
  }
  return out;
}

// The weight of another layer in its place, with that layer's bias or with its own.
void try_other_weights(Case& failing, const ConvProbe& probe, const Values& weight, const ConvParams& r,
                       EditSearch<ConvParams>& search) {
  std::vector<std::string> names;
  for (const auto& [name, shape] : failing.weights_r->shapes())
    if (shape == weight.shape && name != failing.module + ".weight") names.push_back(name);
  sort_by_nearness(names, failing.module + ".weight");
  if (names.size() > kMostOtherWeights) names.resize(kMostOtherWeights);
  for (const std::string& name : names) {
    if (failing.explains_candidate(search.best().residual)) return;
    const auto other = failing.weight_r(name), bias = failing.weight_r(parent_of(name) + ".bias");
    if (!other) continue;
    for (const std::vector<float>* with : {bias && bias->size() == weight.shape[0] ? &bias->v : nullptr,
                                           static_cast<const std::vector<float>*>(nullptr)}) {
      EditedForm<ConvParams> found{
          r, INFINITY, {{"convolution.other_weight", "load this layer's own weight, not " + name, Blame::kWeights}}};
      found.form.weight = name, found.residual = probe.measure(true, r, {&*other, nullptr, with});
      search.take(std::move(found));
    }
  }
}

// The weight in few bits, with its bits taken for others, or read from the wrong place.
bool search_forms(Case& failing, const ConvProbe& probe, const Values& weight, const ConvParams& r,
                  const Report& report) {
  const Values own = probe.own_rows(), whole = reshaped(weight, {weight.shape[0], own.last()});
  const double with_reference = probe.measure(true, r);
  const auto explains = [&](const Values& rows, bool rounded, const std::string& words, const std::string& fix) {
    const double residual = probe.measure(true, r, {nullptr, &rows, nullptr});
    if (!failing.explains_candidate(residual) || !failing.is_better(residual, with_reference)) return false;
    const Cause cause = rounded ? Cause("convolution.weight_rounded") : Cause("convolution.different_weight");
    return report.add({cause, fix, Blame::kWeights}, "the same with " + words, residual);
  };
  for (const WeightForm& form : row_forms(whole))
    if (explains(form.make(own), form.rounded, form.words, form.fix)) return true;
  for (const WeightMemory& memory : weight_memories(whole.shape))
    if (memory.tile == 0 && explains(rows_in_memory(memory, whole, probe.channels(), probe.channels().size()), false,
                                     memory.words, memory.fix))
      return true;
  return false;
}

// Whose bias was added: the offset of each channel, where it is another layer's.
std::string bias_like(Case& failing, const std::vector<double>& offsets, const std::vector<int64_t>& channels,
                      const std::vector<float>& own) {
  size_t looked = 0;
  for (const auto& [name, shape] : failing.weights_r->shapes()) {
    if (!name.ends_with("bias") || checked_numel(shape) != static_cast<int64_t>(own.size()) ||
        ++looked > kMostOtherBiases)
      continue;
    const auto other = failing.weight_r(name);
    if (!other) continue;
    Residual apart;
    for (size_t k = 0; k < channels.size(); ++k) {
      const size_t at = static_cast<size_t>(channels[k]);
      const double mine = own[at] + offsets[k];
      apart.add(other->v[at], mine);
    }
    if (apart.relative() < 1e-2) return name;
  }
  return "";
}

EditName scaled_weight() {
  return {"convolution.weight_scaled", "a factor on the weight is missing or applied twice", Blame::kWeights};
}

// The bias alone, or nearly: a weight of zeros, or one that is only small and still goes with the right product. Asked
// before anything else, as all that makes the weight small explains such an output.
bool search_nothing_but_bias(Case& failing, const ConvProbe& probe, const ConvParams& r, const Report& report) {
  const auto [right, mine] = probe.products(r);
  const Values zeros = make_values({static_cast<int64_t>(probe.channels().size()), probe.own_rows().last()});
  const double tt = squared_norm(mine.v), left = tt > 0 ? probe.measure(true, r, {nullptr, &zeros, nullptr}) : 0;
  if (!failing.explains_candidate(left) || !failing.is_better(left, probe.measure(true, r))) return false;
  const double xx = squared_norm(right.v), related = tt > 0 && xx > 0 ? correlation(mine.v, right.v) : 0;
  if (std::fabs(related) < kUnrelated) {
    // Where an older tap of time holds zeros, to take that one gives the same, and is the likelier mistake.
    for (int64_t tap = 0; tap + 1 < probe.geometry().taps && r.taps == 0; ++tap) {
      ConvParams other = r;
      other.taps = 1u << tap;
      if (const double of_tap = probe.measure(true, other); failing.explains_candidate(of_tap)) {
        report.add({"convolution.temporal_tap", "for one frame use the newest (last) temporal tap of the kernel alone"},
                   formula(other, probe) + ", which is zeros", of_tap, 0.6);
        break;
      }
    }
    return report.add({"convolution.zero_weight", "the weight is zeros: it was never loaded", Blame::kWeights},
                      "b alone", left, 0.7);
  }
  LineFit products;
  for (size_t i = 0; i < mine.v.size(); ++i) products.add(right.v[i], mine.v[i]);
  const double factor = products.factor(0);
  Residual rest;
  for (size_t i = 0; i < mine.v.size(); ++i) rest.add(factor * right.v[i], mine.v[i]);
  if (rest.is_beyond(kScaledRest)) return false;
  return report.add(scaled_weight(), fmt::format("{} conv(x, W) + b", number(factor)), left * rest.relative());
}

// The right product with another factor, order or offset for each output channel.
bool search_products(Case& failing, const ConvProbe& probe, const ConvParams& r, const Report& report) {
  auto [right, mine] = probe.products(r);
  const size_t places = static_cast<size_t>(right.last());
  LineFit all;
  for (size_t i = 0; i < mine.v.size(); ++i) all.add(right.v[i], mine.v[i]);
  const double factor = all.factor(0);
  Residual one, each, offset;
  std::vector<double> offsets;
  for (size_t c = 0; c * places < mine.v.size(); ++c) {
    LineFit channel;
    for (size_t i = c * places; i < (c + 1) * places; ++i) channel.add(right.v[i], mine.v[i]);
    offsets.push_back(channel.offset());
    for (size_t i = c * places; i < (c + 1) * places; ++i) {
      one.add(factor * right.v[i], mine.v[i]), each.add(channel.factor(0) * right.v[i], mine.v[i]);
      offset.add(right.v[i] + channel.offset(), mine.v[i]);
    }
  }
  const auto fits = [&](const Residual& left) { return failing.explains_candidate(left.relative()); };
  if (fits(one) && std::fabs(factor - 1) > 10 * failing.tolerance)
    return report.add(scaled_weight(), fmt::format("{} conv(x, W) + b", number(factor)), one.relative());
  if (fits(offset) && places >= 4) {
    const std::string whose = probe.bias().empty() ? "" : bias_like(failing, offsets, probe.channels(), probe.bias());
    return report.add({"convolution.different_bias", "compare the loaded bias with the file", Blame::kWeights},
                      "conv(x, W) plus " + (whose.empty() ? "another vector, which is not this layer's bias" : whose),
                      offset.relative());
  }
  if (fits(each) && places >= 6)
    return report.add({"convolution.weight_scaled",
                       "the scales of the weight's rows are missing, or those of other rows", Blame::kWeights},
                      "conv(x, W) with a factor of its own for each output channel, plus b", each.relative(), 1.4);
  for (const Rearrangement& found : find_rearrangements("", mine, right, failing.tolerance))
    if (failing.explains_candidate(found.residual))
      return report.add(
          {found.id, "the output channels of the weight are in another order than those of the bias", Blame::kWeights},
          "the same product, " + found.words + ", and then the bias in its own order", found.residual, 1.2);
  return false;
}

}  // namespace

void search_convolution(Case& failing, Findings& out) {
  if (failing.role == Role::kInput || !failing.weights_r || failing.r.rank() < 3) return;
  const auto weight = failing.weight_r(failing.module + ".weight");
  if (!weight || weight->rank() < 3 || weight->rank() > 5) return;
  const bool one_axis = weight->rank() == 3;
  if (one_axis != (failing.r.rank() == 3)) return;
  for (const Item* input : input_items(failing, 0)) {
    if (input->shape.size() != failing.r.rank()) continue;
    const ConvProbe probe(failing, *input, *weight);
    if (!probe.possible()) continue;
    const auto measure_r = [&](const ConvParams& p) { return probe.measure(false, p); };
    const auto measure_c = [&](const ConvParams& p) { return probe.measure(true, p); };
    const auto glance = [&](const ConvParams& p) { return probe.measure(true, p, {}, true); };
    const auto fitted = fit_reference(
        conv_forms(probe, as_picture(failing.reference_of(*input), one_axis), as_picture(failing.r, one_axis)),
        measure_r, failing.tolerance);
    if (!failing.explains(fitted.residual)) continue;
    const ConvParams& r = fitted.form;
    const double with_reference = measure_c(r);
    if (failing.note_local(with_reference)) return;
    const Report report(formula(r, probe), fitted.residual, out);
    if (search_nothing_but_bias(failing, probe, r, report)) return;
    Budget budget(kMostConvForms);
    EditSearch<ConvParams> search(r, measure_c, 1, budget);
    search.look_first(glance, kClearlyBetter * glance(r));
    const std::vector<Edit<ConvParams>> edits = conv_edits(r, probe);
    search.try_each(edits);
    try_other_weights(failing, probe, *weight, r, search);
    search.try_all_pairs(edits, [&](double residual) { return failing.explains_candidate(residual); });
    const EditedForm<ConvParams>& c = search.best();
    if (failing.explains_candidate(c.residual) && failing.is_better(c.residual, with_reference))
      report.add(c.name(), formula(c.form, probe), c.residual, c.complexity());
    else if (!search_forms(failing, probe, *weight, r, report) && !search_products(failing, probe, r, report))
      search_solved_kernel(failing, probe, r, report);
    return;
  }
}

}  // namespace lockstep
