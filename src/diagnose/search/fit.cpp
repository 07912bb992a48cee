#include "diagnose/search/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "measure/axis_words.h"

namespace lockstep {

int channel_axis(const std::string& name, const Shape& shape) {
  const std::vector<std::string> words = axis_words(name, shape);
  for (size_t axis = 0; axis < words.size(); ++axis)
    if (words[axis] == "channel") return static_cast<int>(axis);
  return static_cast<int>(shape.size()) - 1;
}

Values channels_last(const Values& x, int axis) {
  if (x.rank() == 0) return reshaped(x, {1, 1});
  const int64_t channels = x.shape[static_cast<size_t>(axis)];
  if (channels == 0) return reshaped(x, {0, 1});
  if (axis + 1 == static_cast<int>(x.rank())) return reshaped(x, {x.size() / channels, channels});
  std::vector<int> order;
  for (int i = 0; i < static_cast<int>(x.rank()); ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  return reshaped(permuted(x, order), {x.size() / channels, channels});
}

Values sampled(const Values& rows, int64_t most) {
  return rows.rows() <= most ? rows : take_rows(rows, sample_indices(rows.rows(), most));
}

int64_t worst_item(const Case& failing) {
  if (failing.r.rank() < 3 || failing.r.shape[0] < 2) return 0;
  const size_t size = failing.r.v.size() / static_cast<size_t>(failing.r.shape[0]);
  double most = -1;
  int64_t worst = 0;
  for (int64_t i = 0; i < failing.r.shape[0]; ++i) {
    double dd = 0;
    for (size_t k = static_cast<size_t>(i) * size; k < static_cast<size_t>(i + 1) * size; ++k) {
      const double d = static_cast<double>(failing.c.v[k]) - failing.r.v[k];
      dd += d * d;
    }
    if (dd > most) most = dd, worst = i;
  }
  return worst;
}

Values batch_item(const Values& x, int64_t item, int64_t batch) {
  if (batch < 2 || x.rank() < 2 || x.shape[0] != batch) return x;
  const int64_t size = x.size() / batch;
  Values out{x.shape, {x.v.begin() + item * size, x.v.begin() + (item + 1) * size}};
  out.shape[0] = 1;
  return out;
}

std::vector<const Item*> equal_size_items(Case& failing, size_t most) {
  std::vector<const Item*> out;
  for (const Item& item : failing.items) {
    if (out.size() >= most) break;
    const RecordedTensor& record = failing.reference_run().records[item.reference];
    if (!is_floating(record.dtype) || checked_numel(item.shape) != failing.r.size()) continue;
    if (!same_size_shape(item.shape, failing.r.shape)) continue;
    const Values& values = failing.reference_of(item);
    if (values.empty() || failing.candidate_of(item).size() != values.size()) continue;
    const bool repeated = std::any_of(out.begin(), out.end(),
                                      [&](const Item* other) { return failing.reference_of(*other).v == values.v; });
    if (!repeated) out.push_back(&item);
  }
  return out;
}

std::vector<const Item*> input_items(Case& failing, int64_t last_axis) {
  std::vector<const Item*> own, near;
  for (const Item& item : failing.items) {
    if (item.shape.empty() || (last_axis > 0 && item.shape.back() != last_axis)) continue;
    if (!is_floating(failing.reference_run().records[item.reference].dtype)) continue;
    if (item.relation == Relation::kOwnInput)
      own.push_back(&item);
    else if (near.size() < 8)
      near.push_back(&item);
  }
  return own.empty() ? near : own;
}

std::vector<NamedVector> vector_dictionary(Case& failing, int64_t channels) {
  std::vector<NamedVector> out;
  const int64_t worst = worst_item(failing);
  const auto add = [&](const std::string& name, std::span<const float> r, std::span<const float> c) {
    out.push_back({name, {r.begin(), r.end()}, {c.begin(), c.end()}});
  };
  for (const Item& item : failing.items) {
    const int64_t count = checked_numel(item.shape);
    if (channels < 2 || count == 0 || count % channels || count / channels > 48) continue;
    const int64_t parts = item.shape.back() % channels ? 0 : item.shape.back() / channels;
    if (parts == 0 || count / item.shape.back() > 8) continue;  // a vector per batch item, no tokens
    const Values &r = failing.reference_of(item), &c = failing.candidate_of(item);
    if (r.size() != count || c.size() != count) continue;
    // [batch, parts * channels]: the row of the item that is looked at
    const int64_t batch = count / item.shape.back(), row = batch > 1 && batch == failing.r.shape[0] ? worst : 0;
    for (int64_t part = row * parts; part < (row + 1) * parts; ++part)
      add(parts == 1 ? item.label() : fmt::format("{}[part {} of {}]", item.label(), part % parts + 1, parts),
          std::span(r.v).subspan(static_cast<size_t>(part * channels), static_cast<size_t>(channels)),
          std::span(c.v).subspan(static_cast<size_t>(part * channels), static_cast<size_t>(channels)));
  }
  if (failing.weights_r) {
    std::string scope = failing.module.empty() ? failing.name : parent_of(failing.module);
    for (const auto& [name, shape] : failing.weights_r->shapes()) {
      if (checked_numel(shape) != channels || !is_inside(name, scope) || out.size() > 400) continue;
      const auto r = failing.weight_r(name), c = failing.weight_c(name);
      if (r && c && r->size() == channels && c->size() == channels) add(name, r->v, c->v);
    }
  }
  return out;
}

std::string constant_name(double value, const Shape& shape, double tolerance) {
  const double limit = std::max(1e-4, 4 * tolerance);
  const auto is = [&](double constant) { return std::fabs(value / constant - 1) < limit; };
  static const std::pair<double, const char*> kConstants[] = {
      {1, "1"},     {-1, "-1"},           {2, "2"},          {0.5, "1/2"},
      {-2, "-2"},   {1000, "1000"},       {0.001, "1/1000"}, {std::log(2.0), "log 2"},
      {255, "255"}, {1 / 255.0, "1/255"}, {127.5, "127.5"},  {3, "3"},
      {4, "4"},     {0.25, "1/4"},        {10, "10"},        {100, "100"}};
  for (const auto& [constant, name] : kConstants)
    if (is(constant)) return name;
  std::set<int64_t> sizes(shape.begin(), shape.end());
  for (const int64_t d : {8, 16, 32, 40, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 3072, 3584})
    sizes.insert(d);
  for (const int64_t d : sizes) {
    if (d < 3) continue;
    const double root = std::sqrt(static_cast<double>(d));
    if (is(root)) return fmt::format("sqrt({})", d);
    if (is(1 / root)) return fmt::format("1/sqrt({})", d);
  }
  for (const int64_t d : sizes) {
    if (d < 3) continue;
    if (is(static_cast<double>(d))) return fmt::format("{}", d);
    if (is(1 / static_cast<double>(d))) return fmt::format("1/{}", d);
  }
  return "";
}

std::string number(double value) {
  return fmt::format("{:.5g}", value);
}

std::string ordinal(size_t i) {
  return fmt::format("{}{}", i,
                     i % 10 == 1 && i % 100 != 11   ? "st"
                     : i % 10 == 2 && i % 100 != 12 ? "nd"
                     : i % 10 == 3 && i % 100 != 13 ? "rd"
                                                    : "th");
}

}  // namespace lockstep
