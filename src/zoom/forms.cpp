#include "zoom/forms.h"

#include <algorithm>
#include <numeric>

#include "zoom/arithmetic.h"

namespace lockstep::zoom {
namespace {

constexpr size_t kMostForms = 24;
constexpr int64_t kMostPut = 1 << 22;  // elements

}  // namespace

std::vector<std::shared_ptr<const Numbers>> forms_of(const Numbers& mine, const Shape& wanted) {
  std::vector<std::shared_ptr<const Numbers>> out;
  if (mine.count() != checked_numel(wanted) || mine.count() > kMostPut) return out;
  const auto add = [&](Numbers numbers) {
    numbers.shape = wanted;
    out.push_back(std::make_shared<Numbers>(std::move(numbers)));
  };
  add(mine);
  const Numbers packed{without_ones(mine.shape), mine.values};
  const Shape target = without_ones(wanted);
  if (packed.shape.size() < 2 || packed.shape.size() > 5 || packed.shape.size() != target.size()) return out;
  std::vector<int> axes(packed.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  while (out.size() < kMostForms && std::next_permutation(axes.begin(), axes.end())) {
    bool fits = true;
    for (size_t i = 0; i < axes.size(); ++i) fits &= packed.shape[static_cast<size_t>(axes[i])] == target[i];
    if (fits) add(permute(packed, axes));
  }
  return out;
}

}  // namespace lockstep::zoom
