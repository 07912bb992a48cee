#include "compare/work_back.h"

#include <algorithm>
#include <cmath>

#include "compare/inverse_linear.h"

namespace lockstep {
namespace {

constexpr size_t kNear = 64;        // records looked through for layers with the same input
constexpr double kTooSteep = 0.02;  // rounding must not become more than this on the way back
constexpr int64_t kMostProducts = int64_t{40} << 30;

struct Layer {
  std::string module;
  size_t input = 0;
  Values weight;            // [N, K]
  std::vector<float> bias;  // empty: none
  const Values *y_r = nullptr, *y_c = nullptr;
};

bool same_call(const RunView& run, size_t a, size_t b) {
  return run.records[a].key.step == run.records[b].key.step && run.records[a].key.tags == run.records[b].key.tags;
}

std::optional<Layer> layer_of(Case& failing, size_t output, size_t candidate) {
  const RunView& run = failing.reference_run();
  const Structure& structure = failing.structure();
  Layer out;
  out.module = structure.site(output).module;
  if (run.records[output].role != Role::kOutput || out.module.empty() || structure.is_container(out.module))
    return std::nullopt;
  auto weight = failing.weight_c(out.module + ".weight");
  if (!weight || weight->rank() != 2) return std::nullopt;
  out.weight = std::move(*weight);
  if (const auto bias = failing.weight_c(out.module + ".bias")) out.bias = bias->v;
  const auto inputs = structure.records_of(out.module, Role::kInput, output);
  if (inputs.size() != 1 || inputs[0] > output || !run.records[inputs[0]].load) return std::nullopt;
  out.input = inputs[0];
  out.y_r = &failing.load_reference(output), out.y_c = &failing.load_candidate(candidate);
  const auto fits = [&](const Values& y) { return y.size() > 0 && y.size() % out.weight.rows() == 0; };
  if (!fits(*out.y_r) || out.y_r->size() != out.y_c->size()) return std::nullopt;
  return out;
}

// [rows, N] without the bias.
Values product_of(const Layer& layer, const Values& y) {
  Values out = reshaped(y, {y.size() / layer.weight.rows(), layer.weight.rows()});
  for (int64_t row = 0; row < out.rows() && !layer.bias.empty(); ++row)
    for (size_t i = 0; i < layer.bias.size(); ++i) out.row(row)[i] -= layer.bias[i];
  return out;
}

Values worked_back(const std::vector<Layer>& layers, const InverseLinear& inverse, bool candidate) {
  std::vector<Values> products;
  for (const Layer& layer : layers) products.push_back(product_of(layer, candidate ? *layer.y_c : *layer.y_r));
  std::vector<const Values*> pointers;
  for (const Values& product : products) pointers.push_back(&product);
  return inverse.input_of(pointers);
}

// ||x W^T - y|| / ||y|| on some rows.
double misfit(const Layer& layer, const Values& x) {
  const Values y = product_of(layer, *layer.y_c);
  double dd = 0, yy = 0;
  for (const int64_t row : sample_indices(y.rows(), 24))
    for (int64_t i = 0; i < layer.weight.rows(); ++i) {
      double sum = 0;
      for (int64_t k = 0; k < layer.weight.last(); ++k)
        sum += static_cast<double>(x.row(row)[static_cast<size_t>(k)]) * layer.weight.row(i)[static_cast<size_t>(k)];
      const double target = y.row(row)[static_cast<size_t>(i)];
      dd += (sum - target) * (sum - target), yy += target * target;
    }
  return yy > 0 ? std::sqrt(dd / yy) : INFINITY;
}

std::vector<Layer> layers_on_the_same_input(Case& failing, size_t output) {
  const RunView& run = failing.reference_run();
  std::vector<Layer> out;
  auto own = layer_of(failing, output, failing.candidate_record());
  if (!own || failing.partner(own->input) != SIZE_MAX) return out;
  const std::string checksum = run.records[own->input].checksum;
  out.push_back(std::move(*own));
  if (checksum.empty()) return out;
  const size_t from = output > kNear ? output - kNear : 0, to = std::min(output + kNear, run.records.size());
  for (size_t i = from; i < to; ++i) {
    if (i == output || !same_call(run, i, output) || failing.partner(i) == SIZE_MAX) continue;
    auto other = layer_of(failing, i, failing.partner(i));
    if (!other || run.records[other->input].checksum != checksum || other->module == out[0].module) continue;
    if (other->weight.last() == out[0].weight.last()) out.push_back(std::move(*other));
  }
  return out;
}

}  // namespace

size_t first_with_these_values(const RunView& run, size_t record) {
  size_t out = record;
  if (run.records[record].checksum.empty()) return out;
  for (size_t i = record, seen = 0; i-- > 0 && seen < kNear; ++seen)
    if (run.records[i].checksum == run.records[record].checksum && same_call(run, i, record)) out = i;
  return out;
}

std::optional<WorkedBack> work_back(Case& failing) {
  if (failing.role != Role::kOutput || !failing.weights_r || failing.r.size() != failing.c.size()) return std::nullopt;
  const RunView& run = failing.reference_run();
  size_t output = first_with_these_values(run, failing.reference_record());
  if (run.records[output].role != Role::kOutput) output = failing.reference_record();
  const std::vector<Layer> layers = layers_on_the_same_input(failing, output);
  if (layers.empty()) return std::nullopt;
  const int64_t k = layers[0].weight.last();
  if (2 * k * k * (k / 3 + layers[0].y_r->size() / layers[0].weight.rows()) > kMostProducts) return std::nullopt;
  std::vector<const Values*> weights;
  for (const Layer& layer : layers) weights.push_back(&layer.weight);
  const InverseLinear inverse(weights);
  if (!inverse.usable()) return std::nullopt;
  WorkedBack out;
  out.record = layers[0].input;
  out.reference = failing.load_reference(out.record);
  const Values again = worked_back(layers, inverse, false);
  if (again.size() != out.reference.size()) return std::nullopt;
  const double steep = relative_error(again.v, out.reference.v);
  if (!(steep < kTooSteep)) return std::nullopt;
  const Values x = worked_back(layers, inverse, true);
  for (const Layer& layer : layers)
    if (misfit(layer, x) > std::max(failing.tolerance, 4 * steep)) return std::nullopt;
  out.candidate = reshaped(x, out.reference.shape);
  out.tolerance = std::max(failing.tolerance, 4 * steep);
  if (relative_error(out.candidate.v, out.reference.v) <= out.tolerance) return std::nullopt;  // fed the right thing
  for (const Layer& layer : layers) out.from.push_back(layer.module);
  return out;
}

}  // namespace lockstep
