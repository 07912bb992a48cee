#include "diagnose/case/case.h"

namespace lockstep {

std::string Item::label() const {
  return role == Role::kInput ? "input " + name : name;
}

Case::Case(const RunView& reference, const RunView& candidate, const Structure& structure, size_t reference_record,
           size_t candidate_record)
    : reference_(reference),
      candidate_(candidate),
      structure_(structure),
      reference_record_(reference_record),
      candidate_record_(candidate_record) {
  const RecordedTensor& record = reference.records[reference_record];
  name = record.key.name;
  role = record.role;
  step = record.key.step;
  module = structure.site(reference_record).module;
  is_leaf = !module.empty() && !structure.is_container(module);
  if (record.load) r = values_from(record.load());
  if (candidate.records[candidate_record].load) c = values_from(candidate.records[candidate_record].load());
  if (same_size_shape(r.shape, c.shape)) c.shape = r.shape;
}

const Values& Case::load_reference(size_t record) {
  auto& slot = (*loaded_r_)[record];
  if (slot.empty() && reference_.records[record].load) slot = values_from(reference_.records[record].load());
  return slot;
}

const Values& Case::load_candidate(size_t record) {
  auto& slot = (*loaded_c_)[record];
  if (slot.empty() && record < candidate_.records.size() && candidate_.records[record].load)
    slot = values_from(candidate_.records[record].load());
  return slot;
}

const Values& Case::reference_of(const Item& item) {
  return load_reference(item.reference);
}

const Values& Case::candidate_of(const Item& item) {
  return item.assumed ? load_reference(item.reference) : load_candidate(item.candidate);
}

std::optional<Values> Case::weight_r(const std::string& weight_name) const {
  return weights_r ? weights_r->find(weight_name) : std::nullopt;
}

std::optional<Values> Case::weight_c(const std::string& weight_name) const {
  return weights_c ? weights_c->find(weight_name) : weight_r(weight_name);
}

std::string Case::where() const {
  const std::string& place = candidate_.records[candidate_record_].where;
  const std::string who = module.empty() ? name : module;
  return place.empty() ? who : who + " (" + place + ")";
}

Case Case::with_pair(Values reference, Values candidate) const {
  Case out = *this;
  out.r = std::move(reference), out.c = std::move(candidate);
  out.error = relative_error(out.c.v, out.r.v);
  return out;
}

}  // namespace lockstep
