#include "diagnose/work_back/work_back.h"

#include <algorithm>
#include <cmath>

#include "diagnose/case/thresholds.h"
#include "diagnose/linear/inverse_linear.h"
#include "diagnose/linear/linear_probe.h"
#include "diagnose/work_back/worked_back_time.h"

namespace lockstep {
namespace {

constexpr size_t kNear = 64;  // records looked through for layers with the same input
constexpr int64_t kMostProducts = int64_t{40} << 30;

struct Layer {
  std::string module;
  size_t input = 0;
  Values weight;            // [N, K]
  std::vector<float> bias;  // empty: none
  bool picture = false;     // a convolution of single pixels: channels are axis 1
  Values y_r, y_c;          // [rows, N], the bias taken away
};

// [rows, N] without the bias.
Values product_of(const Layer& layer, const Values& y) {
  Values out = channels_last(y, layer.picture ? 1 : static_cast<int>(y.rank()) - 1);
  for (int64_t row = 0; row < out.rows() && !layer.bias.empty(); ++row)
    for (size_t i = 0; i < layer.bias.size(); ++i) out.row(row)[i] -= layer.bias[i];
  return out;
}

// [rows, K] back in the shape of a picture, or of anything whose last axis is K.
Values in_shape(const Values& rows, const Shape& shape, bool picture) {
  if (!picture) return reshaped(rows, shape);
  Values out = make_values(shape);
  int64_t pixels = 1;
  for (size_t axis = 2; axis < shape.size(); ++axis) pixels *= shape[axis];
  for (int64_t row = 0; row < rows.rows(); ++row)
    for (int64_t c = 0; c < rows.last(); ++c)
      out.v[static_cast<size_t>((row / pixels * rows.last() + c) * pixels + row % pixels)] =
          rows.row(row)[static_cast<size_t>(c)];
  return out;
}

std::optional<Layer> layer_of(Case& failing, size_t output, size_t candidate) {
  const RunView& run = failing.reference_run();
  const Structure& structure = failing.structure();
  Layer out;
  out.module = structure.site(output).module;
  if (run.records[output].role != Role::kOutput || out.module.empty() || structure.is_container(out.module))
    return std::nullopt;
  auto weight = failing.weight_c(out.module + ".weight");
  if (!weight || weight->rank() < 2) return std::nullopt;
  const int64_t outputs = weight->shape[0], inputs = weight->shape[1];
  if (weight->size() != outputs * inputs) return std::nullopt;  // a kernel of more than a pixel mixes them
  out.picture = weight->rank() > 2;
  out.weight = reshaped(std::move(*weight), {outputs, inputs});
  if (const auto bias = failing.weight_c(out.module + ".bias")) out.bias = bias->v;
  const auto given = structure.records_of(out.module, Role::kInput, output);
  if (given.size() != 1 || given[0] > output || !run.records[given[0]].load) return std::nullopt;
  out.input = given[0];
  const Shape& shape = run.records[output].shape;
  if (out.picture ? shape.size() < 3 || shape[1] != outputs : shape.empty() || shape.back() != outputs)
    return std::nullopt;
  Values y_r = failing.load_reference(output), y_c = failing.load_candidate(candidate);
  if (y_r.empty() || y_r.size() != y_c.size()) return std::nullopt;
  out.y_r = product_of(out, reshaped(std::move(y_r), shape));
  out.y_c = product_of(out, reshaped(std::move(y_c), shape));
  return out;
}

Values worked_back(const std::vector<Layer>& layers, const InverseLinear& inverse, bool candidate) {
  std::vector<const Values*> products;
  for (const Layer& layer : layers) products.push_back(candidate ? &layer.y_c : &layer.y_r);
  return inverse.input_of(products);
}

double misfit(const Layer& layer, const Values& x) {  // on some rows
  const std::vector<int64_t> rows = sample_indices(x.rows(), 24);
  const int64_t outputs = layer.weight.rows();
  return linear_misfit(take_rows(x, rows), take_rows(layer.y_c, rows), layer.weight,
                       std::vector<float>(static_cast<size_t>(outputs)), sample_indices(outputs, outputs));
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
    const std::string& module = failing.structure().site(i).module;
    if (i == output || module == out[0].module || !same_call(run, i, output) || failing.partner(i) == SIZE_MAX)
      continue;
    // Before anything is loaded: most neighbours were given something else.
    const auto given = failing.structure().records_of(module, Role::kInput, i);
    if (given.size() != 1 || run.records[given[0]].checksum != checksum) continue;
    auto other = layer_of(failing, i, failing.partner(i));
    if (!other) continue;
    if (other->weight.last() == out[0].weight.last() && other->picture == out[0].picture)
      out.push_back(std::move(*other));
  }
  return out;
}

}  // namespace

std::optional<WorkedBack> work_back(Case& failing) {
  if (failing.role != Role::kOutput || failing.r.size() != failing.c.size()) return std::nullopt;
  if (auto time = work_back_time(failing)) return time;
  if (!failing.weights_r) return std::nullopt;
  const RunView& run = failing.reference_run();
  size_t output = first_with_these_values(run, failing.reference_record());
  if (run.records[output].role != Role::kOutput) output = failing.reference_record();
  const std::vector<Layer> layers = layers_on_the_same_input(failing, output);
  if (layers.empty()) return std::nullopt;
  const int64_t k = layers[0].weight.last();
  if (2 * k * k * (k / 3 + layers[0].y_r.rows()) > kMostProducts) return std::nullopt;
  std::vector<const Values*> weights;
  for (const Layer& layer : layers) weights.push_back(&layer.weight);
  const InverseLinear inverse(weights);
  if (!inverse.usable()) return std::nullopt;
  WorkedBack out;
  out.record = layers[0].input;
  out.reference = failing.load_reference(out.record);
  const Values again = worked_back(layers, inverse, false);
  if (again.size() != out.reference.size()) return std::nullopt;
  const double steep = relative_error(in_shape(again, out.reference.shape, layers[0].picture).v, out.reference.v);
  if (!(steep < kTooSteep)) return std::nullopt;
  const Values x = worked_back(layers, inverse, true);
  for (const Layer& layer : layers)
    if (misfit(layer, x) > std::max(failing.tolerance, 4 * steep)) return std::nullopt;
  out.candidate = in_shape(x, out.reference.shape, layers[0].picture);
  out.tolerance = std::max(failing.tolerance, 4 * steep);
  if (relative_error(out.candidate.v, out.reference.v) <= out.tolerance) return std::nullopt;  // fed the right thing
  for (const Layer& layer : layers) out.from.push_back(layer.module);
  return out;
}

}  // namespace lockstep
