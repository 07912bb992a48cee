#include "report/html_report.h"

#include <algorithm>
#include <cmath>

#include "base/base64.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/shown_json.h"
#include "compare/layout_view.h"
#include "compare/pictures.h"
#include "io/gzip.h"
#include "report/page.h"
#include "report/tensor_maps.h"

namespace lockstep {
namespace {

constexpr int64_t kPictureSide = 1024;  // larger pictures are thinned

// What is shown of a pair: nothing where values were not kept, one side where both are the same.
int maps_of(const PairResult& result, const RunView& reference, const RunView& candidate) {
  const bool r = !!reference.records[result.pair.reference].load, c = !!candidate.records[result.pair.candidate].load;
  if (result.error.identical) return r || c ? 1 : 0;
  return r && c ? 3 : 0;
}

// In the order of the rows; null where there is nothing to show.
Json all_maps(const Comparison& comparison, const RunView& reference, const RunView& candidate, MapBlock& block) {
  int64_t count = 0;
  for (const PairResult& result : comparison.results) count += maps_of(result, reference, candidate);
  const MapForm form = map_form(count);
  Json out = Json::array();
  for (size_t i = 0; i < comparison.results.size(); ++i) {
    check_interrupt("report");
    const PairResult& result = comparison.results[i];
    const RecordedTensor& r = reference.records[result.pair.reference];
    const RecordedTensor& c = candidate.records[result.pair.candidate];
    const bool first = comparison.first && comparison.first->result == i;
    const int maps = maps_of(result, reference, candidate);
    if (maps == 0)
      out.push_back(Json());
    else if (maps == 1)
      out.push_back(block.add(r.load ? r.load() : c.load(), std::nullopt, form));
    else
      out.push_back(block.add(r.load(), c.load(), first ? kLargestMap : form));
  }
  return out;
}

Json picture(const Values& pixels) {
  const int64_t height = pixels.shape[0], width = pixels.shape[1], channels = pixels.shape[2];
  const int64_t step = std::max<int64_t>(1, (std::max(height, width) + kPictureSide - 1) / kPictureSide);
  std::vector<uint8_t> rgb;
  for (int64_t y = 0; y < height; y += step)
    for (int64_t x = 0; x < width; x += step)
      for (int64_t c = 0; c < 3; ++c) {
        const int64_t at = (y * width + x) * channels + (channels < 3 ? 0 : c);
        rgb.push_back(static_cast<uint8_t>(std::lround(pixels.v[static_cast<size_t>(at)])));
      }
  return {{"height", (height + step - 1) / step}, {"width", (width + step - 1) / step}, {"rgb", base64(rgb)}};
}

Json pictures(const Comparison& comparison, const RunView& reference, const RunView& candidate) {
  Json out = Json::array();
  for (const ImagePair& image : comparison.images) {
    const Pair& pair = comparison.results[image.result].pair;
    const Pictures shown = pictures_of(reference.records[pair.reference], candidate.records[pair.candidate]);
    out.push_back({{"name", image.name},
                   {"psnr", json_number(image.psnr)},
                   {"ssim", json_number(image.ssim)},
                   {"reference", picture(shown.reference[image.item])},
                   {"candidate", picture(shown.candidate[image.item])}});
    if (out.size() == 4) break;
  }
  return out;
}

// A row is an array: 3,000 of them must stay light.
Json rows(const Comparison& comparison, const RunView& reference) {
  Json out = Json::array();
  for (const PairResult& result : comparison.results) {
    const RecordedTensor& record = reference.records[result.pair.reference];
    std::string pass;
    for (const auto& [key, value] : record.key.tags) pass += (pass.empty() ? "" : " ") + value;
    out.push_back({record.key.name, role_name(record.role), record.key.step, record.key.hit, pass,
                   state_name(result.state), json_number(result.error.relative), json_number(result.noise_floor),
                   json_number(result.error.max_abs), json_number(result.error.cosine), to_string(record.shape),
                   dtype_name(record.dtype), result.note});
  }
  return out;
}

// "</script>" inside a name must not end the script.
std::string script_safe(const std::string& json) {
  std::string out;
  out.reserve(json.size() + json.size() / 64);
  for (const char c : json)
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  return out;
}

}  // namespace

std::string html_report(const Comparison& comparison, const RunView& reference, const RunView& candidate,
                        const Ledger* ledger, const Json& inside) {
  Json summary = json_from(comparison, reference, candidate);
  summary.erase("tensors");
  summary.erase("unpaired");
  summary["unpaired_counts"] = {{"reference", comparison.only_reference.size()},
                                {"candidate", comparison.only_candidate.size()}};
  MapBlock block;
  Json bulk = {{"rows", rows(comparison, reference)},
               {"maps", all_maps(comparison, reference, in_layout_of(reference, candidate, comparison), block)}};
  Json data = {{"summary", std::move(summary)},
               {"first", comparison.first ? Json(comparison.first->result) : Json()},
               {"pictures", pictures(comparison, reference, candidate)},
               {"ledger", ledger ? json_from(*ledger) : Json()},
               {"inside", inside},
               {"factor", comparison.floor_factor}};
  return page_with({script_safe(shown_json(with_strings_escaped(std::move(data)))),
                    gzip(shown_json(with_strings_escaped(std::move(bulk))), 9), gzip(block.bytes(), 9)});
}

void write_html_report(const fs::path& path, const Comparison& comparison, const RunView& reference,
                       const RunView& candidate, const Ledger* ledger, const Json& inside) {
  write_atomically(path, html_report(comparison, reference, candidate, ledger, inside));
}

}  // namespace lockstep
