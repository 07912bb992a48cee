#include "report/html_report.h"

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "report/page.h"

namespace lockstep {
namespace {

constexpr int64_t kMapSide = 128;       // cells of a heat map, at most
constexpr int kBins = 64;               // bars of a histogram
constexpr int64_t kPictureSide = 1024;  // larger pictures are thinned

std::string base64(const std::vector<uint8_t>& bytes) {
  static const char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(3, bytes.size() - i);
    uint32_t word = 0;
    for (size_t k = 0; k < 3; ++k) word = word << 8 | (k < left ? bytes[i + k] : 0);
    for (size_t k = 0; k < 4; ++k) out += k <= left ? kAlphabet[word >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

Json numbers(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double value : values) out.push_back(json_number(value));
  return out;
}

// A tensor as a picture: its last axis across, all others down; each cell the value farthest from zero in its block.
Json heat_map(const Values& x) {
  const int64_t rows = std::max<int64_t>(1, x.rows()), columns = x.last();
  const int64_t height = std::min(rows, kMapSide), width = std::min(columns, kMapSide);
  std::vector<double> cells(static_cast<size_t>(height * width), 0);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      double& cell = cells[static_cast<size_t>(i * height / rows * width + j * width / columns)];
      const double value = x.v[static_cast<size_t>(i * columns + j)];
      if (!std::isfinite(value) || std::fabs(value) > std::fabs(cell)) cell = value;
    }
  return {{"height", height}, {"width", width}, {"rows", rows}, {"columns", columns}, {"cells", numbers(cells)}};
}

Json histogram(const Values& x, double low, double high) {
  std::vector<double> bins(kBins);
  for (const float value : x.v) {
    if (!std::isfinite(value) || !(high > low)) continue;
    const int bin = static_cast<int>((value - low) / (high - low) * kBins);
    ++bins[static_cast<size_t>(std::clamp(bin, 0, kBins - 1))];
  }
  return numbers(bins);
}

Json first_tensor(const Comparison& comparison, const RunView& reference, const RunView& candidate) {
  if (!comparison.first) return Json();
  const Pair& pair = comparison.results[comparison.first->result].pair;
  const RecordedTensor &r = reference.records[pair.reference], &c = candidate.records[pair.candidate];
  if (!r.load || !c.load) return Json();
  const Values a = values_from(r.load()), b = values_from(c.load());
  Json out = {{"reference", heat_map(a)}, {"candidate", heat_map(b)}};
  double low = INFINITY, high = -INFINITY;
  for (const Values* side : {&a, &b})
    for (const float value : side->v)
      if (std::isfinite(value)) low = std::min<double>(low, value), high = std::max<double>(high, value);
  out["histogram"] = {{"low", json_number(low)},
                      {"high", json_number(high)},
                      {"reference", histogram(a, low, high)},
                      {"candidate", histogram(b, low, high)}};
  if (a.shape == b.shape) {
    Values d = b;
    for (size_t i = 0; i < d.v.size(); ++i) d.v[i] -= a.v[i];
    out["difference"] = heat_map(d);
  }
  return out;
}

Json picture(const Tensor& tensor) {
  const Tensor pixels = tensor.contiguous();
  const int64_t height = pixels.dim(0), width = pixels.dim(1), channels = pixels.dim(2);
  const int64_t step = std::max<int64_t>(1, (std::max(height, width) + kPictureSide - 1) / kPictureSide);
  std::vector<uint8_t> rgb;
  const uint8_t* data = pixels.data<uint8_t>();
  for (int64_t y = 0; y < height; y += step)
    for (int64_t x = 0; x < width; x += step)
      for (int64_t c = 0; c < 3; ++c) rgb.push_back(data[(y * width + x) * channels + std::min(c, channels - 1)]);
  return {{"height", (height + step - 1) / step}, {"width", (width + step - 1) / step}, {"rgb", base64(rgb)}};
}

Json pictures(const Comparison& comparison, const RunView& reference, const RunView& candidate) {
  Json out = Json::array();
  for (const ImagePair& image : comparison.images) {
    const Pair& pair = comparison.results[image.result].pair;
    out.push_back({{"name", image.name},
                   {"psnr", json_number(image.psnr)},
                   {"ssim", json_number(image.ssim)},
                   {"reference", picture(reference.records[pair.reference].load())},
                   {"candidate", picture(candidate.records[pair.candidate].load())}});
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
std::string script_safe(std::string json) {
  std::string out;
  for (size_t i = 0; i < json.size(); ++i)
    if (json[i] == '<')
      out += "\\u003c";
    else
      out += json[i];
  return out;
}

}  // namespace

std::string html_report(const Comparison& comparison, const RunView& reference, const RunView& candidate,
                        const Ledger* ledger) {
  Json summary = json_from(comparison, reference, candidate);
  summary.erase("tensors");
  summary.erase("unpaired");
  summary["unpaired_counts"] = {{"reference", comparison.only_reference.size()},
                                {"candidate", comparison.only_candidate.size()}};
  Json data = {{"summary", summary},
               {"rows", rows(comparison, reference)},
               {"first", comparison.first ? Json(comparison.first->result) : Json()},
               {"tensor", first_tensor(comparison, reference, candidate)},
               {"pictures", pictures(comparison, reference, candidate)},
               {"ledger", ledger ? json_from(*ledger) : Json()},
               {"factor", kFloorFactor}};
  const std::string page(kPage);
  const std::string mark = "/*DATA*/null";
  const size_t at = page.find(mark);
  const std::string text = data.dump(-1, ' ', false, Json::error_handler_t::replace);
  return page.substr(0, at) + script_safe(text) + page.substr(at + mark.size());
}

void write_html_report(const fs::path& path, const Comparison& comparison, const RunView& reference,
                       const RunView& candidate, const Ledger* ledger) {
  write_atomically(path, html_report(comparison, reference, candidate, ledger));
}

}  // namespace lockstep
