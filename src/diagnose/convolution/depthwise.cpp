// y[c] = conv(x[c], W[c]) + b[c]: a convolution in which each channel has a kernel of its own. The family to copy when
// writing another: a form, its distance from a side, the forms a reference may have, the edits with their causes.
#include "diagnose/search/edits.h"
#include "diagnose/search/fit.h"
#include "measure/residual.h"

namespace lockstep {
namespace {

constexpr int64_t kMostPlanes = 8, kMostPlaces = 64;

struct Depthwise {
  int64_t padding = 0;  // rows and columns in front
  bool mirrored = false, turned = false, border_repeated = false;
  int64_t kernel_of = 0;  // this many channels on
  double bias = 1;        // how many times it is added
};

// x and y [n, C, h, w], the weight [C, 1, k, k], in some planes and places.
double misfit(const Depthwise& p, const Values& x, const Values& y, const Values& w, const std::vector<float>& bias) {
  const int64_t channels = x.dim(1), h = x.dim(2), width = x.dim(3), k = w.dim(2), out_h = y.dim(2), out_w = y.dim(3);
  Residual unexplained;
  for (const int64_t plane : sample_indices(x.dim(0) * channels, kMostPlanes))
    for (const int64_t place : sample_indices(out_h * out_w, kMostPlaces)) {
      const int64_t c = plane % channels, row = place / out_w - p.padding, column = place % out_w - p.padding;
      const float* kernel = w.v.data() + (c + p.kernel_of + channels) % channels * k * k;
      double sum = bias.empty() ? 0 : p.bias * bias[static_cast<size_t>(c)];
      for (int64_t i = 0; i < k; ++i)
        for (int64_t j = 0; j < k; ++j) {
          const int64_t a = p.mirrored ? k - 1 - i : i, b = p.mirrored ? k - 1 - j : j;
          int64_t at_row = row + i, at_column = column + j;
          if (p.border_repeated) at_row = std::clamp<int64_t>(at_row, 0, h - 1);
          if (p.border_repeated) at_column = std::clamp<int64_t>(at_column, 0, width - 1);
          if (at_row < 0 || at_row >= h || at_column < 0 || at_column >= width) continue;
          sum += static_cast<double>(kernel[p.turned ? b * k + a : a * k + b]) *
                 x.v[static_cast<size_t>((plane * h + at_row) * width + at_column)];
        }
      unexplained.add(sum, y.v[static_cast<size_t>(plane * out_h * out_w + place)]);
    }
  return unexplained.relative();
}

const std::vector<Edit<Depthwise>> kDepthwiseEdits = {
    {{"convolution.bias_missing"}, [](Depthwise& p) { p.bias = 0; }},
    {{"convolution.bias_doubled"}, [](Depthwise& p) { p.bias = 2; }},
    {{"convolution.kernel_mirrored"}, [](Depthwise& p) { p.mirrored = !p.mirrored; }},
    {{"convolution.kernel_axes"}, [](Depthwise& p) { p.turned = !p.turned; }},
    {{"convolution.padding"}, [](Depthwise& p) { p.border_repeated = true; }, 1},
    {{"convolution.padding"}, [](Depthwise& p) { p.padding = 0; }, 1},
    {{"convolution.kernel_axes", "give each channel its own kernel"}, [](Depthwise& p) { p.kernel_of = 1; }, 2},
    {{"convolution.kernel_axes", "give each channel its own kernel"}, [](Depthwise& p) { p.kernel_of = -1; }, 2},
};

}  // namespace

void search_depthwise(Case& failing, Findings& out) {
  const auto w = failing.weight_r(failing.module + ".weight"), b = failing.weight_r(failing.module + ".bias");
  if (!w || w->rank() != 4 || w->dim(1) != 1 || w->dim(2) != w->dim(3) || failing.r.rank() != 4) return;
  const auto items = input_items(failing, 0);
  if (items.empty() || items[0]->shape.size() != 4 || items[0]->shape[1] != w->dim(0) || failing.r.dim(1) != w->dim(0))
    return;
  const std::vector<float> bias = b ? b->v : std::vector<float>();
  const auto of_r = [&](const Depthwise& p) { return misfit(p, failing.reference_of(*items[0]), failing.r, *w, bias); };
  const auto of_c = [&](const Depthwise& p) { return misfit(p, failing.candidate_of(*items[0]), failing.c, *w, bias); };
  const auto r = fit_reference(std::vector<Depthwise>{{w->dim(2) / 2}, {0}}, of_r, failing.tolerance);
  if (!failing.explains(r.residual) || failing.note_local(of_c(r.form))) return;
  Budget budget(1000);
  EditSearch<Depthwise> search(r.form, of_c, 1, budget);
  search.try_each(kDepthwiseEdits);
  search.try_all_pairs(kDepthwiseEdits, [&](double residual) { return failing.explains_candidate(residual); });
  const EditedForm<Depthwise>& c = search.best();
  if (failing.explains_candidate(c.residual) && failing.is_better(c.residual, of_c(r.form)))
    Report("a convolution in which each channel has a kernel of its own", r.residual, out)
        .add(c.name(), "the same, but " + c.words(), c.residual, c.complexity());
}

}  // namespace lockstep
