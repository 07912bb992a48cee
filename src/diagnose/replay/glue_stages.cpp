// Stages of the code between modules: a modulation, a sum with or without a gate, a gated activation, a part of the
// rows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "diagnose/norm/norm_form.h"
#include "diagnose/replay/stage_graph.h"
#include "diagnose/search/functions.h"
#include "measure/line_fit.h"

namespace lockstep {
namespace {

constexpr size_t kMostTerms = 8;
constexpr double kNearPart = 2e-3;  // a vector that was solved for is one that was recorded

// One of the parts that a recorded vector is cut into.
struct VectorPart {
  size_t record = SIZE_MAX;
  size_t part = 0, parts = 1;
  explicit operator bool() const { return record != SIZE_MAX; }
};

VectorPart part_like(StageSources& in, size_t record, const std::vector<double>& wanted) {
  const size_t width = wanted.size();
  VectorPart best;
  double least = kNearPart;
  for (const size_t vector : in.vectors(record, static_cast<int64_t>(width))) {
    const Flat& all = in.values(vector);
    for (size_t part = 0; part < all.size() / width; ++part) {
      double dd = 0, ww = 1e-30;
      for (size_t c = 0; c < width; ++c) {
        const double off = all[part * width + c] - wanted[c];
        dd += off * off, ww += wanted[c] * wanted[c];
      }
      if (std::sqrt(dd / ww) < least) least = std::sqrt(dd / ww), best = {vector, part, all.size() / width};
    }
  }
  return best;
}

// The source `at` in the place of another.
template <typename Form>
std::function<Flat(Sources)> with_source(const Form& own, size_t place, size_t at) {
  return [own, place, at](Sources from) {
    std::vector<const Flat*> moved(from.begin(), from.end());
    moved[place] = from[at];
    return own(moved);
  };
}

// The same part of another vector that is cut into as many: the other stream's.
template <typename Form>
void add_other_vectors(StageSources& in, size_t record, const VectorPart& own_part, size_t place, Cause cause,
                       const Form& own, Stage& out) {
  const int64_t size = in.size(own_part.record);
  for (const size_t other : in.vectors(record, size / static_cast<int64_t>(own_part.parts)))
    if (other != own_part.record && in.size(other) == size && out.from.size() < 6) {
      out.from.push_back(other);
      out.edits.push_back({cause, fmt::format("the same with {}", in.name(other)),
                           fmt::format("take {}", in.name(own_part.record)), 0.87,
                           with_source(own, place, out.from.size() - 1)});
    }
}

const float* part_of(const Flat& vector, size_t part, size_t width) {
  return vector.data() + part * width;
}

// y = x * (scale + one) + shift by channel, scale and shift being parts of one vector; SIZE_MAX: none.
struct Modulation {
  size_t width = 0, scale = SIZE_MAX, shift = SIZE_MAX;
  float one = 1, sign = 1;

  Flat operator()(Sources from) const {
    const Flat &x = *from[0], &vector = *from[1];
    Flat out(x.size());
    const float* s = scale == SIZE_MAX ? nullptr : part_of(vector, scale, width);
    const float* t = shift == SIZE_MAX ? nullptr : part_of(vector, shift, width);
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t c = i % width;
      out[i] = x[i] * (s ? one + s[c] : 1) + (t ? sign * t[c] : 0);
    }
    return out;
  }
};

std::vector<StageEdit> modulation_edits(const Modulation& own, size_t parts, const std::string& x) {
  std::vector<StageEdit> out;
  const std::string right =
      fmt::format("{} * (1 + part {} of {}) + part {} of {}", x, own.scale + 1, parts, own.shift + 1, parts);
  const auto add = [&](Cause cause, std::string yours, std::string fix, double complexity, auto&& change) {
    Modulation other = own;
    change(other);
    out.push_back({cause, std::move(yours), std::move(fix), complexity, other});
  };
  add("modulate.shift_scale_exchanged",
      fmt::format("{} * (1 + part {} of {}) + part {} of {}", x, own.shift + 1, parts, own.scale + 1, parts),
      "exchange shift and scale: compute " + right, 0.8, [](Modulation& m) { std::swap(m.scale, m.shift); });
  add("modulate.one_plus_missing", x + " * scale + shift", "use (1 + scale) in place of scale", 0.8,
      [](Modulation& m) { m.one = 0; });
  add("modulate.shift_missing", x + " * (1 + scale)", "add the shift", 0.8, [](Modulation& m) { m.shift = SIZE_MAX; });
  add("modulate.scale_missing", x + " + shift", "multiply by (1 + scale)", 0.8,
      [](Modulation& m) { m.scale = SIZE_MAX; });
  add("modulate.missing", x, "modulate: compute " + right, 0.8, [](Modulation& m) { m.scale = m.shift = SIZE_MAX; });
  add("modulate.form", x + " * (2 + scale) + shift", "use (1 + scale)", 0.8, [](Modulation& m) { m.one = 2; });
  add("modulate.shift", x + " * (1 + scale) - shift", "add the shift", 0.8, [](Modulation& m) { m.sign = -1; });
  for (size_t s = 0; s < parts; ++s)
    for (size_t t = 0; t < parts; ++t) {
      const bool moved_alike = s + own.shift == t + own.scale, swapped = s == own.shift && t == own.scale;
      if ((s == own.scale && t == own.shift) || swapped) continue;
      add("modulate.other_part", fmt::format("{} * (1 + part {} of {}) + part {} of {}", x, s + 1, parts, t + 1, parts),
          "compute " + right, s == own.scale || t == own.shift || moved_alike ? 0.85 : 0.95,
          [=](Modulation& m) { m.scale = s, m.shift = t; });
    }
  return out;
}

// y = stream + gate * branch; the gate a part of a vector, one number, or none.
struct Sum {
  size_t width = 0, gate = SIZE_MAX;  // the gate's part
  double factor = 1;
  enum class Form { kPlain, kOnePlus, kSquared, kTanh, kSigmoid } form = Form::kPlain;
  bool stream = true, branch = true;
  NormKind normed = NormKind::kNone;  // the branch

  Flat operator()(Sources from) const {
    const Flat& h = *from[0];
    Flat f = *from[1];
    if (normed != NormKind::kNone) {
      NormParams params;
      params.kind = normed;
      std::vector<double> row(width);
      for (size_t at = 0; at + width <= f.size(); at += width) {
        std::copy_n(f.begin() + static_cast<std::ptrdiff_t>(at), width, row.begin());
        normalise(row.data(), static_cast<int64_t>(width), 1, params);
        std::copy(row.begin(), row.end(), f.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    const float* gates = gate == SIZE_MAX ? nullptr : part_of(*from[2], gate, width);
    Flat out(h.size());
    for (size_t i = 0; i < h.size(); ++i) {
      double by = gates ? gates[i % width] : 1;
      by = form == Form::kOnePlus   ? 1 + by
           : form == Form::kSquared ? by * by
           : form == Form::kTanh    ? std::tanh(by)
           : form == Form::kSigmoid ? sigmoid(by)
                                    : by;
      out[i] = static_cast<float>((stream ? h[i] : 0) + (branch ? factor * by * f[i] : 0));
    }
    return out;
  }
};

// Between modules a sum is a residual; between the pipeline's stages it is the step of a sampler.
struct SumCauses {
  Cause missing = "residual.missing", branch_missing = "residual.branch_missing", sign = "residual.sign",
        factor = "residual.factor", other_input = "residual.other_input";
};
constexpr const char* kStep = "scheduler.formula";

SumCauses causes_of_sum(bool is_step) {
  return is_step ? SumCauses{kStep, kStep, "scheduler.sign", "scheduler.dt", kStep} : SumCauses{};
}

std::vector<StageEdit> sum_edits(const Sum& own, size_t parts, const SumCauses& causes, const std::string& a,
                                 const std::string& b) {
  std::vector<StageEdit> out;
  const bool gated = own.gate != SIZE_MAX;
  const std::string g = gated ? "gate * " : own.factor == 1 ? "" : fmt::format("{:.6g} * ", own.factor);
  const auto add = [&](Cause cause, std::string yours, std::string fix, double complexity, auto&& change) {
    Sum other = own;
    change(other);
    out.push_back({cause, std::move(yours), std::move(fix), complexity, other});
  };
  if (gated)
    add("gate.missing", fmt::format("{} + {}", a, b), "multiply " + b + " by the gate", 0.8,
        [](Sum& s) { s.gate = SIZE_MAX; });
  add(causes.missing, g + b, "add " + a, 0.8, [](Sum& s) { s.stream = false; });
  add(causes.branch_missing, a, "add " + g + b, 0.8, [](Sum& s) { s.branch = false; });
  add(causes.sign, fmt::format("{} - {}{}", a, g, b), "add " + g + b + ", do not take it away", 0.8,
      [](Sum& s) { s.factor = -s.factor; });
  for (const double by : {0.5, 2.0})
    add(causes.factor, fmt::format("{} + {:g} * {}{}", a, by, g, b), "add " + g + b + " as it is", 0.85,
        [=](Sum& s) { s.factor *= by; });
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer})
    add("norm.added", fmt::format("{} + {}{} of {}", a, g, kind_name(kind), b), "add " + b + " as it is", 0.85,
        [=](Sum& s) { s.normed = kind; });
  if (!gated) return out;
  for (const auto& [form, words] : {std::pair{Sum::Form::kOnePlus, "(1 + gate)"},
                                    {Sum::Form::kSquared, "gate^2"},
                                    {Sum::Form::kTanh, "tanh(gate)"},
                                    {Sum::Form::kSigmoid, "sigmoid(gate)"}})
    add("gate.form", fmt::format("{} + {} * {}", a, words, b), "use the gate as it is", 0.85,
        [f = form](Sum& s) { s.form = f; });
  for (size_t part = 0; part < parts; ++part)
    if (part != own.gate)
      add("gate.other_part", fmt::format("{} + part {} of {} * {}", a, part + 1, parts, b),
          fmt::format("take part {} for the gate", own.gate + 1), 0.85, [=](Sum& s) { s.gate = part; });
  return out;
}

// y = act(gate) * up.
using Combine = float (*)(double (*)(double), double, double);

std::function<Flat(Sources)> combined(size_t function, Combine combine) {
  return [=](Sources from) {
    Flat out(from[0]->size());
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = combine(element_functions()[function].f, (*from[0])[i], (*from[1])[i]);
    return out;
  };
}

float activated_product(double (*act)(double), double x, double by) {
  return static_cast<float>(act(x) * by);
}

Stage gated_stage(const StageSources& in, size_t gate, size_t up, size_t f, int64_t size) {
  const auto functions = element_functions();
  const std::string g = in.name(gate), u = in.name(up), name = functions[f].name;
  const std::string right = fmt::format("{} * {} with x = {}", name, u, g);
  Stage out{.from = {gate, up},
            .kind = "product",
            .place = "",
            .formula = right,
            .apply = combined(f, activated_product),
            .work = kFunctionWork * size};
  const auto add = [&](Cause cause, std::string yours, double complexity, size_t function, Combine combine) {
    out.edits.push_back({cause, std::move(yours), "compute " + right, complexity, combined(function, combine)});
  };
  if (f != 0)
    add("activation.gate_up_exchanged", fmt::format("{} * {} with x = {}", name, g, u), 0.8, f,
        [](double (*act)(double), double x, double by) { return static_cast<float>(x * act(by)); });
  add("activation.product_missing", name, 0.8, f,
      [](double (*act)(double), double x, double) { return static_cast<float>(act(x)); });
  add("activation.other_input", fmt::format("{} with x = {} * {}", name, g, u), 0.85, f,
      [](double (*act)(double), double x, double by) { return static_cast<float>(act(x * by)); });
  add("activation.product_missing", fmt::format("{} + {}", name, u), 0.85, f,
      [](double (*act)(double), double x, double by) { return static_cast<float>(act(x) + by); });
  add("activation.added", fmt::format("{} of both, and their product", name), 0.85, f,
      [](double (*act)(double), double x, double by) { return static_cast<float>(act(x) * act(by)); });
  for (size_t other = 0; other < functions.size() && f != 0; ++other)
    if (other != f && (other == 0 || functions[other].is_activation))
      add(other == 0 ? Cause("activation.missing") : Cause("activation.kind"),
          fmt::format("{} * {}", functions[other].name, u), 0.85, other, activated_product);
  return out;
}

}  // namespace

std::optional<Stage> find_modulation(StageSources& in, size_t record) {
  const size_t width = static_cast<size_t>(in.width(record));
  const Flat& y = in.values(record);
  const size_t rows = y.size() / width;
  if (rows < 5 || in.failing().structure().site(record).module.empty())
    return std::nullopt;  // two numbers a channel fit anything
  for (const size_t source : in.near(record, in.size(record))) {
    const Flat& x = in.values(source);
    std::vector<double> a(width), b(width);
    double off = 0, all = 1e-300;
    for (size_t c = 0; c < width; ++c) {
      LineFit points;
      for (size_t t = 0; t < rows; ++t) points.add(x[t * width + c], y[t * width + c]);
      const Line line = points.line(0, 0);
      a[c] = line.scale - 1, b[c] = line.offset;
      for (size_t t = 0; t < rows; ++t) {
        const double apart = line.scale * x[t * width + c] + line.offset - y[t * width + c];
        off += apart * apart, all += y[t * width + c] * y[t * width + c];
      }
    }
    if (!in.explains(std::sqrt(off / all))) continue;
    const VectorPart scale = part_like(in, record, a), shift = part_like(in, record, b);
    if (!scale || !shift || scale.record != shift.record) continue;
    const Modulation own{width, scale.part, shift.part};
    const Flat* given[] = {&x, &in.values(scale.record)};
    if (!in.explains(flat_distance(own(given), y))) continue;
    Stage out{.from = {source, scale.record},
              .kind = "modulation",
              .place = "",
              .formula = fmt::format("{} * (1 + part {} of {}) + part {} of {}", in.name(source), scale.part + 1,
                                     scale.parts, shift.part + 1, scale.parts),
              .apply = own,
              .work = 2 * kElementWork * in.size(record),
              .edits = modulation_edits(own, scale.parts, in.name(source))};
    add_other_vectors(in, record, scale, 1, "modulate.other_part", own, out);
    return out;
  }
  return std::nullopt;
}

std::optional<Stage> find_sum(StageSources& in, size_t record) {
  const size_t width = static_cast<size_t>(in.width(record));
  const Flat& y = in.values(record);
  std::vector<size_t> near = in.near(record, in.size(record));
  near.resize(std::min(near.size(), kMostTerms));
  for (const size_t stream : near)
    for (const size_t branch : near) {
      if (stream == branch) continue;
      const Flat &h = in.values(stream), &f = in.values(branch);
      // One number for all first: a plain sum, or the step of a sampler.
      double ff = 1e-300, fy = 0;
      for (size_t i = 0; i < y.size(); ++i) ff += f[i] * f[i], fy += f[i] * (static_cast<double>(y[i]) - h[i]);
      Sum own{.width = width, .factor = fy / ff};
      const bool plain = std::fabs(own.factor - 1) < 1e-4;
      if (plain) own.factor = 1;
      std::vector<const Flat*> given{&h, &f};
      VectorPart gate;
      if (plain && stream > branch && in.failing().structure().site(record).module.size())
        continue;  // the stream was there first
      if (!in.explains(flat_distance(own(given), y))) {
        std::vector<double> gates(width);
        for (size_t c = 0; c < width; ++c) {
          double cc = 1e-300, cy = 0;
          for (size_t i = c; i < y.size(); i += width)
            cc += f[i] * f[i], cy += f[i] * (static_cast<double>(y[i]) - h[i]);
          gates[c] = cy / cc;
        }
        gate = part_like(in, record, gates);
        if (!gate) continue;
        own.factor = 1, own.gate = gate.part;
        given.push_back(&in.values(gate.record));
        if (!in.explains(flat_distance(own(given), y))) continue;
      }
      Stage out{.from = {stream, branch},
                .kind = "sum",
                .place = "",
                .apply = own,
                .work = 2 * kElementWork * in.size(record)};
      if (gate) out.from.push_back(gate.record);
      const std::string a = in.name(stream), b = in.name(branch);
      out.formula = fmt::format("{} + {}{}", a,
                                gate    ? "gate * "
                                : plain ? ""
                                        : fmt::format("{:.6g} * ", own.factor),
                                b);
      const SumCauses causes = causes_of_sum(in.failing().structure().site(record).module.empty());
      out.edits = sum_edits(own, gate.parts, causes, a, b);
      out.numbers.push_back({causes.factor, fmt::format("{} + {}{} times", a, gate ? "gate * " : "", b),
                             "add " + out.formula, [own](Sources from, double factor) {
                               Sum other = own;
                               other.factor = factor;
                               return other(from);
                             }});
      if (gate) add_other_vectors(in, record, gate, 2, "gate.other_part", own, out);
      // Another tensor in the stream's place: it becomes one more source.
      for (const size_t other : in.near(record, in.size(record)))
        if (other != stream && other != branch && out.from.size() < 8) {
          const size_t at = out.from.size();
          out.from.push_back(other);
          out.edits.push_back({causes.other_input, fmt::format("{} + {}{}", in.name(other), gate ? "gate * " : "", b),
                               "add " + a, 0.85, with_source(own, 0, at)});
        }
      return out;
    }
  return std::nullopt;
}

std::optional<Stage> find_product(StageSources& in, size_t record) {
  const auto functions = element_functions();
  const Flat& y = in.values(record);
  std::vector<size_t> near = in.near(record, in.size(record));
  near.resize(std::min(near.size(), kMostTerms));
  for (const size_t gate : near)
    for (const size_t up : near) {
      if (gate == up) continue;
      const Flat* given[] = {&in.values(gate), &in.values(up)};
      for (size_t f = 0; f < functions.size(); ++f) {
        if (f != 0 && !functions[f].is_activation) continue;
        const double first = functions[f].f((*given[0])[0]) * (*given[1])[0];
        if (std::fabs(first - y[0]) > 1e-2 * (std::fabs(y[0]) + 1e-3)) continue;
        if (!in.explains(flat_distance(combined(f, activated_product)(given), y))) continue;
        // The activation may be a module of its own: what it was given takes part then, whichever of the two it is.
        if (f == 0)
          for (const auto& [active, by] : {std::pair{gate, up}, std::pair{up, gate}})
            if (const auto made = function_of(in, in.origin(active)); made && functions[made->function].is_activation)
              return gated_stage(in, made->source, by, made->function, in.size(record));
        return gated_stage(in, gate, up, f, in.size(record));
      }
    }
  return std::nullopt;
}

// Rows of a longer tensor: a prompt without its template.
std::optional<Stage> find_part(StageSources& in, size_t record) {
  const Flat& y = in.values(record);
  const size_t width = static_cast<size_t>(in.width(record));
  for (size_t i = record, seen = 0; i-- > 0 && seen < 64; ++seen) {
    if (in.size(i) <= in.size(record) || in.run().records[i].role == Role::kInput ||
        static_cast<size_t>(in.width(i)) != width)
      continue;
    const Flat& x = in.values(i);
    for (size_t at = 0; at + y.size() <= x.size(); at += width)
      if (std::equal(y.begin(), y.end(), x.begin() + static_cast<std::ptrdiff_t>(at)))
        return Stage{.from = {i},
                     .kind = "part",
                     .place = "",
                     .formula = fmt::format("rows {} and later of {}", at / width, in.name(i)),
                     .apply = [at, n = y.size()](Sources from) {
                       const auto begin = from[0]->begin() + static_cast<std::ptrdiff_t>(at);
                       return Flat(begin, begin + static_cast<std::ptrdiff_t>(n));
                     }};
  }
  return std::nullopt;
}

Stage handed_stage(StageSources& in, size_t record) {
  const auto values = std::make_shared<const Flat>(in.values(record));
  const std::string name = in.name(record);
  const auto times = [values](double factor) {
    Flat out = *values;
    for (float& x : out) x = static_cast<float>(factor * x);
    return out;
  };
  Stage out{.record = record,
            .kind = "given",
            .place = place_of_code(name),
            .formula = name + " as it is",
            .apply = [values](Sources) { return *values; },
            .work = kElementWork * in.size(record),
            .is_recorded = true};
  const int64_t width = in.width(record);
  const double root = std::sqrt(static_cast<double>(width));
  for (const auto& [factor, words] : {std::pair{root, "sqrt"}, {1 / root, "1/sqrt"}})
    out.edits.push_back({"affine.scale", fmt::format("{} times {}({})", name, words, width), "remove the factor", 0.85,
                         [times, factor = factor](Sources) { return times(factor); }});
  out.numbers.push_back({"affine.scale", name + " times", "remove the factor",
                         [times](Sources, double factor) { return times(factor); }});
  return out;
}

Stage given_stage(StageSources& in, size_t record) {
  const auto values = std::make_shared<const Flat>(in.values(record));
  const size_t width = static_cast<size_t>(in.width(record));
  const std::string name = in.name(record);
  Stage out = handed_stage(in, record);
  out.is_recorded = false;
  const auto add = [&](Cause cause, std::string yours, std::string fix, auto&& move) {
    out.edits.push_back({cause, std::move(yours), std::move(fix), 0.9, [=](Sources) {
                           Flat moved = *values;
                           for (size_t i = 0; i < moved.size(); ++i)
                             moved[i] = move(values->data() + i / width * width, i % width, width);
                           return moved;
                         }});
  };
  const bool times = name.find("time") != std::string::npos;
  add(times ? Cause("timestep.cos_sin_order") : Cause("layout.parts_exchanged"), name + " with its halves exchanged",
      "exchange the halves", [](const float* x, size_t i, size_t n) { return x[(i + n / 2) % n]; });
  add(times ? Cause("timestep.sign") : Cause("affine.scale"), name + " with its second half negated",
      "turn the sign of the second half", [](const float* x, size_t i, size_t n) { return i < n / 2 ? x[i] : -x[i]; });
  add("layout.interleaved", name + " with its halves interleaved", "put one half after the other",
      [](const float* x, size_t i, size_t n) { return x[i / 2 + i % 2 * (n / 2)]; });
  add("layout.reversed", name + " in reverse", "turn it round",
      [](const float* x, size_t i, size_t n) { return x[n - 1 - i]; });
  // Latents in patches of 2 x 2: a token holds channels, rows and columns, in this order.
  if (name.find("latents") != std::string::npos && width % 4 == 0 && width > 4) {
    const std::array<size_t, 3> sizes{width / 4, 2, 2}, strides{4, 2, 1};
    const char* const axes[] = {"channel", "row", "column"};
    for (std::array<size_t, 3> order{0, 1, 2}; std::next_permutation(order.begin(), order.end());)
      add("layout.packing", fmt::format("tokens packed by {}, {}, {}", axes[order[0]], axes[order[1]], axes[order[2]]),
          "pack each token by channel, row, column", [=](const float* x, size_t i, size_t) {
            const size_t inner = sizes[order[2]], middle = sizes[order[1]];
            return x[i % inner * strides[order[2]] + i / inner % middle * strides[order[1]] +
                     i / (inner * middle) * strides[order[0]]];
          });
  }
  for (const float by : {-1.0F, 2.0F, 0.5F, 1000.0F, 0.001F})
    add("affine.scale", fmt::format("{} times {:g}", name, by), fmt::format("divide by {:g}", by),
        [by](const float* x, size_t i, size_t) { return by * x[i]; });
  return out;
}

}  // namespace lockstep
