#include "measure/metrics_json.h"

namespace lockstep {
namespace {

Json side(const Shape& shape, DType dtype, const Statistics& statistics) {
  return {{"dtype", dtype_name(dtype)}, {"shape", shape}, {"stats", json_from(statistics)}};
}

}  // namespace

Json json_from(const Statistics& s) {
  return {{"min", json_number(s.min)},
          {"max", json_number(s.max)},
          {"mean", json_number(s.mean)},
          {"std", json_number(s.std)},
          {"rms", json_number(s.rms)},
          {"absmax", json_number(s.absmax)},
          {"nan", s.nan},
          {"inf", s.inf},
          {"zero", s.zero},
          {"denormal", s.denormal}};
}

Json json_from(const TensorComparison& c) {
  Json json = {{"match", c.match()},
               {"same_shape", c.same_shape},
               {"reference", side(c.reference_shape, c.reference_dtype, c.reference)},
               {"candidate", side(c.candidate_shape, c.candidate_dtype, c.candidate)},
               {"tolerance",
                {{"name", c.tolerance.name}, {"absolute", c.tolerance.absolute}, {"relative", c.tolerance.relative}}},
               {"range_ratio", json_number(c.range_ratio)}};
  if (!c.same_shape) return json;
  json["count"] = c.count;
  json["finite_pairs"] = c.finite_pairs;
  json["mismatches"] = c.mismatches;
  json["mismatch_share"] = c.mismatch_share();
  json["nonfinite_mismatches"] = c.nonfinite_mismatches;
  json["band"] = band_of(c.max_abs).name;
  json["error"] = {{"max_abs", json_number(c.max_abs)},         {"max_rel", json_number(c.max_rel)},
                   {"mean_abs", json_number(c.mean_abs)},       {"rmse", json_number(c.rmse)},
                   {"relative_l2", json_number(c.relative_l2)}, {"cosine", json_number(c.cosine)},
                   {"sqnr_db", json_number(c.sqnr_db)}};
  Json quantiles = Json::array();
  for (const auto& [q, value] : c.quantiles) quantiles.push_back({{"q", q}, {"value", json_number(value)}});
  json["error"]["quantiles"] = quantiles;
  json["ulps"] = c.ulps ? Json{{"max", c.ulps->max}, {"mean", json_number(c.ulps->mean)}} : Json();
  json["worst"] = c.worst ? Json{{"index", c.worst->index},
                                 {"reference", json_number(c.worst->reference)},
                                 {"candidate", json_number(c.worst->candidate)}}
                          : Json();
  Json histogram = Json::array();
  for (const auto& row : c.histogram.rows(24))
    histogram.push_back({{"from", json_number(row.from)}, {"to", json_number(row.to)}, {"count", row.count}});
  json["histogram"] = histogram;
  return json;
}

}  // namespace lockstep
