// The documented schema of `compare --json`: fields are added, never renamed.
#include <cmath>

#include "compare/comparison_summary.h"
#include "compare/coverage.h"

namespace lockstep {
namespace {

Json key_json(const TensorKey& key) {
  Json tags = Json::object();
  for (const auto& [name, value] : key.tags) tags[name] = value;
  return {{"name", key.name}, {"step", key.step < 0 ? Json() : Json(key.step)}, {"hit", key.hit}, {"tags", tags}};
}

Json error_json(const PairError& error) {
  return {{"relative", json_number(error.relative)},
          {"worst_slice", json_number(error.worst_slice)},
          {"max_abs", json_number(error.max_abs)},
          {"max_abs_at", error.max_abs_at},
          {"mean_abs", json_number(error.mean_abs)},
          {"cosine", json_number(error.cosine)},
          {"rms_reference", json_number(error.rms_reference)},
          {"rms_candidate", json_number(error.rms_candidate)},
          {"nan", {{"reference", error.nan_reference}, {"candidate", error.nan_candidate}}},
          {"inf", {{"reference", error.inf_reference}, {"candidate", error.inf_candidate}}},
          {"identical", error.identical}};
}

Json divergence_json(const Comparison& comparison, const RunView& reference, const RunView& candidate) {
  const Divergence& first = *comparison.first;
  const PairResult& result = comparison.results[first.result];
  const RecordedTensor& r = reference.records[result.pair.reference];
  const RecordedTensor& c = candidate.records[result.pair.candidate];
  Json out = {{"stage", first.stage}};
  out.update(key_json(r.key));
  out["role"] = role_name(r.role);
  out["kind"] = first.kind;
  out["parent"] = first.parent;
  out["error"] = error_json(result.error);
  out["noise_floor"] = json_number(result.noise_floor);
  out["in_floors"] = json_number(result.in_floors);
  out["region"] = first.region;
  out["shape"] = {{"reference", r.shape}, {"candidate", c.shape}};
  out["dtype"] = {{"reference", dtype_name(r.dtype)}, {"candidate", dtype_name(c.dtype)}};
  out["where"] = {{"reference", r.where}, {"candidate", c.where}};
  out["isolated"] = result.isolated;
  out["good_inputs"] = first.good_inputs;
  out["input_unknown"] = first.input_unknown;
  out["worked_back_from"] = first.worked_back_from;
  out["between"] = {{"starts", first.starts}, {"stages", first.stages_between}};
  out["hint"] = first.hint;
  return out;
}

Json unpaired_json(const RunView& run, const std::vector<size_t>& records) {
  Json out = Json::array();
  for (const size_t i : records) {
    Json key = key_json(run.records[i].key);
    key["role"] = role_name(run.records[i].role);
    out.push_back(std::move(key));
  }
  return out;
}

}  // namespace

Json summary_json(const Comparison& comparison, const RunView& reference, const RunView& candidate) {
  Json out = {
      {"verdict", comparison.verdict},
      {"compared", comparison.compared},
      {"reference", reference.id},
      {"candidate", candidate.id},
      {"dropped_records", {{"reference", dropped_records(reference)}, {"candidate", dropped_records(candidate)}}},
      {"damaged_tensors", comparison.damaged},
      {"first_divergence", comparison.first ? divergence_json(comparison, reference, candidate) : Json()}};
  out["causes"] = Json::array();
  for (const Finding& cause : comparison.causes)
    out["causes"].push_back({{"cause", cause.cause.id()},
                             {"residual", json_number(cause.residual)},
                             {"residual_reference", json_number(cause.residual_reference)},
                             {"confidence", json_number(cause.confidence)},
                             {"seen", cause.seen},
                             {"explanation", cause.explanation},
                             {"fix", cause.fix},
                             {"look_at", cause.look_at}});
  const Coverage& coverage = comparison.coverage;
  out["coverage"] = {{"paired", coverage.paired}, {"of", coverage.of}, {"failure", coverage.failure}};
  if (const std::string end = end_not_compared(reference, comparison); !end.empty())
    out["coverage"]["not_compared"] = end;
  out["map"] = json_from(comparison.found.rules);
  out["map"]["unsure"] = comparison.found.unsure;
  out["notes"] = comparison.notes;
  out["noise"] = {{"source", comparison.floor_source}, {"factor", comparison.floor_factor}};
  out["growth"] = {{"kind", comparison.growth.kind},
                   {"rate", json_number(comparison.growth.rate)},
                   {"jump", json_number(comparison.growth.jump)},
                   {"words", comparison.growth.words}};
  out["images"] = Json::object();
  for (const ImagePair& image : comparison.images)
    out["images"][image.name] = {{"psnr", json_number(image.psnr)}, {"ssim", json_number(image.ssim)}};
  return out;
}

Json json_from(const Comparison& comparison, const RunView& reference, const RunView& candidate) {
  Json out = summary_json(comparison, reference, candidate);
  out["tensors"] = Json::array();
  for (const PairResult& result : comparison.results) {
    const RecordedTensor& record = reference.records[result.pair.reference];
    Json one = key_json(record.key);
    one["role"] = role_name(record.role);
    one["state"] = state_name(result.state);
    one["partner"] = key_json(candidate.records[result.pair.candidate].key);
    one["partner"]["role"] = role_name(candidate.records[result.pair.candidate].role);
    one["error"] = error_json(result.error);
    one["noise_floor"] = json_number(result.noise_floor);
    one["in_floors"] = json_number(result.in_floors);
    if (!result.note.empty()) one["note"] = result.note;
    out["tensors"].push_back(std::move(one));
  }
  out["unpaired"] = {{"reference", unpaired_json(reference, comparison.only_reference)},
                     {"candidate", unpaired_json(candidate, comparison.only_candidate)}};
  return out;
}

}  // namespace lockstep
