#include "zoom/side.h"

#include <algorithm>
#include <set>

#include "tensor/convert.h"
#include "zoom/agreement.h"

namespace lockstep::zoom {
namespace {

constexpr int64_t kMostHeldBytes = 512LL << 20;

// The file's pages that a value was read from: its floats are held now, and the two together would be twice the memory.
void drop_pages_of(const Tensor& tensor, const MappedFile& file) {
  int64_t lowest = 0, highest = 0;
  for (size_t axis = 0; axis < tensor.rank(); ++axis) {
    const int64_t reach = (tensor.shape()[axis] - 1) * tensor.strides()[axis];
    (reach < 0 ? lowest : highest) += reach;
  }
  const auto size = static_cast<int64_t>(dtype_bytes(tensor.dtype()));
  if (tensor.numel() == 0) return;
  file.drop_pages({tensor.strided_data() + lowest * size, static_cast<size_t>((highest - lowest + 1) * size)});
}

}  // namespace

Side::Side(Tape tape) : tape_(std::move(tape)), held_(tape_.values.size()), totals_(tape_.values.size()) {
  for (size_t i = 0; i < totals_.size(); ++i) totals_[i] = tape_.values[i].totals;
}

void Side::load(int index) const {
  const Value& from = value(index);
  if (!from.tensor.defined()) return;
  auto numbers = std::make_shared<Numbers>();
  numbers->shape = from.tensor.shape();
  numbers->values = to_floats(from.tensor);
  if (tape_.data) drop_pages_of(from.tensor, *tape_.data);
  held_bytes_ += numbers->count() * 4;
  held_[static_cast<size_t>(index)] = std::move(numbers);
  loaded_.push_back(index);
  while (held_bytes_ > kMostHeldBytes && loaded_.size() > 1) {
    std::shared_ptr<const Numbers>& oldest = held_[static_cast<size_t>(loaded_.front())];
    held_bytes_ -= oldest->count() * 4;
    oldest.reset();
    loaded_.pop_front();
  }
}

std::shared_ptr<const Numbers> Side::numbers(int index) const {
  if (!held_[static_cast<size_t>(index)]) load(index);
  return held_[static_cast<size_t>(index)];
}

const Totals& Side::totals(int index) const {
  std::optional<Totals>& known = totals_[static_cast<size_t>(index)];
  if (!known) {
    const auto all = numbers(index);
    known = all ? totals_of(*all) : Totals{};
  }
  return *known;
}

int Side::add_made(Numbers numbers, Step step) {
  const int index = value_count();
  Value made;
  made.origin = Origin::kResult;
  made.shape = numbers.shape;
  made.made_here = true;
  made.step = static_cast<int>(tape_.steps.size());
  step.simple = true;
  step.outputs = {index};
  tape_.values.push_back(std::move(made));
  tape_.steps.push_back(std::move(step));
  held_.push_back(std::make_shared<Numbers>(std::move(numbers)));
  totals_.emplace_back();
  return index;
}

void Side::set_expanded(int value, Step last) {
  last.simple = true;
  last.outputs = {value};
  tape_.values[static_cast<size_t>(value)].expanded = static_cast<int>(tape_.steps.size());
  tape_.steps.push_back(std::move(last));
}

void Side::link_constants(double tolerance) {
  const int count = value_count();
  for (int constant = 0; constant < count; ++constant) {
    if (value(constant).origin != Origin::kConstant || value(constant).step >= 0) continue;
    const Totals& of = totals(constant);
    if (of.count < 8 || of.uniform || of.binary) continue;
    for (int earlier = constant - 1; earlier >= 0; --earlier) {
      if (value(earlier).step < 0 || !may_agree(of, totals(earlier), tolerance)) continue;
      if (!agreement_of(*numbers(constant), *numbers(earlier), tolerance)) continue;
      Step copy;
      copy.kind = "copy";
      copy.operands = {{"input", earlier}};
      copy.outputs = {constant};
      copy.where = step(value(earlier).step).where;
      tape_.values[static_cast<size_t>(constant)].step = static_cast<int>(tape_.steps.size());
      tape_.steps.push_back(std::move(copy));
      break;
    }
  }
}

bool Side::is_ancestor(int older, int younger) const {
  std::vector<int> pending{younger};
  std::set<int> seen;
  while (!pending.empty()) {
    const int at = pending.back();
    pending.pop_back();
    if (at == older) return true;
    if (!seen.insert(at).second) continue;
    for (const int maker : {value(at).step, value(at).expanded})
      if (maker >= 0)
        for (const Operand& operand : step(maker).operands) pending.push_back(operand.value);
  }
  return false;
}

std::vector<int> Side::steps_between(int older, int younger) const {
  std::set<int> found;
  std::vector<int> pending{younger};
  std::set<int> seen;
  while (!pending.empty()) {
    const int at = pending.back();
    pending.pop_back();
    if (at == older || !seen.insert(at).second) continue;
    const int maker = value(at).step;
    if (maker < 0) continue;
    for (const Operand& operand : step(maker).operands)
      if (is_ancestor(older, operand.value)) {
        found.insert(maker);
        pending.push_back(operand.value);
      }
  }
  return {found.begin(), found.end()};
}

}  // namespace lockstep::zoom
