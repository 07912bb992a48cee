// compare rows, tree, heat, picture: what a view of two runs is made of. The comparison itself is made once and kept.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/names.h"
#include "compare/comparison_summary.h"
#include "compare/ledger.h"
#include "compare/pictures.h"
#include "io/image_codecs.h"
#include "measure/value_histogram.h"
#include "service/compare_question.h"
#include "service/groups.h"
#include "service/heat_json.h"
#include "service/service.h"
#include "tensor/index_expression.h"

namespace lockstep {
namespace {

using enum ArgumentType;
using Compared = OpenedRuns::Compared;

constexpr size_t kBins = 64;

std::shared_ptr<const Compared> compared(Service& service, const Json& arguments) {
  return service.opened().comparison(question_from(arguments));
}

std::string pass_of(const TensorKey& key) {
  std::string pass;
  for (const auto& [name, value] : key.tags) pass += (pass.empty() ? "" : " ") + value;
  return pass;
}

Json lone_row(const RecordedTensor& record) {
  return {record.key.name,     role_name(record.role),  record.key.step,         record.key.hit,
          pass_of(record.key), to_string(record.shape), dtype_name(record.dtype)};
}

// A row is an array: ten thousand of them must stay light. The first columns are those of a report.
Json row_of(const Compared& all, const PairResult& result) {
  const RecordedTensor& r = all.answer.reference.records[result.pair.reference];
  const RecordedTensor& c = all.answer.candidate.records[result.pair.candidate];
  return {r.key.name,
          role_name(r.role),
          r.key.step,
          r.key.hit,
          pass_of(r.key),
          state_name(result.state),
          json_number(result.error.relative),
          json_number(result.noise_floor),
          json_number(result.error.max_abs),
          json_number(result.error.cosine),
          to_string(r.shape),
          dtype_name(r.dtype),
          result.note,
          c.key.name == r.key.name ? "" : c.key.name,
          r.load && c.load};
}

Json compare_rows(Service& service, const Json& arguments, CallControl&) {
  const auto all = compared(service, arguments);
  const Comparison& comparison = all->answer.comparison;
  const size_t from = std::min(static_cast<size_t>(arguments["from"].get<int64_t>()), comparison.results.size());
  const size_t to = std::min(from + static_cast<size_t>(arguments["limit"].get<int64_t>()), comparison.results.size());
  Json summary = summary_json(all->answer), rows = Json::array(), images = Json::array();
  for (size_t i = from; i < to; ++i) rows.push_back(row_of(*all, comparison.results[i]));
  for (const ImagePair& image : comparison.images)
    images.push_back({{"name", image.name},
                      {"psnr", json_number(image.psnr)},
                      {"ssim", json_number(image.ssim)},
                      {"row", image.result}});
  Json alone = {{"reference", Json::array()}, {"candidate", Json::array()}};
  for (const size_t i : comparison.only_reference)
    alone["reference"].push_back(lone_row(all->answer.reference.records[i]));
  for (const size_t i : comparison.only_candidate)
    alone["candidate"].push_back(lone_row(all->answer.candidate.records[i]));
  return {{"summary", std::move(summary)},
          {"columns",
           {"name", "role", "step", "hit", "pass", "state", "error", "floor", "largest", "cosine", "shape", "dtype",
            "note", "partner", "kept"}},
          {"rows", std::move(rows)},
          {"total", comparison.results.size()},
          {"from", from},
          {"first", comparison.first ? Json(comparison.first->result) : Json()},
          {"images", std::move(images)},
          {"alone", std::move(alone)},
          {"factor", comparison.floor_factor},
          {"runs",
           {{"reference", {{"id", all->answer.reference.id}, {"header", all->answer.reference.header}}},
            {"candidate", {{"id", all->answer.candidate.id}, {"header", all->answer.candidate.header}}}}}};
}

struct ModuleNode {
  int64_t tensors = 0, bad = 0, alone_reference = 0, alone_candidate = 0;
  double worst = 0;    // in limits
  int64_t first = -1;  // row of its first bad tensor
};

Json compare_tree(Service& service, const Json& arguments, CallControl&) {
  const auto all = compared(service, arguments);
  const Comparison& comparison = all->answer.comparison;
  const std::string under = text_argument(arguments, "under");
  const auto depth = static_cast<size_t>(arguments["depth"].get<int64_t>());
  std::map<std::string, ModuleNode> nodes;
  std::vector<std::string> order;
  const auto each_module = [&](const std::string& name, auto&& add) {
    if (!under.empty() && name != under && !name.starts_with(under + ".")) return;
    size_t at = under.empty() ? 0 : under.size() + 1;
    for (size_t level = 0; level < depth && at < name.size(); ++level) {
      const size_t dot = name.find('.', at);
      const std::string path = name.substr(0, dot);
      const auto [node, is_new] = nodes.try_emplace(path);
      if (is_new) order.push_back(path);
      add(node->second);
      if (dot == std::string::npos) break;
      at = dot + 1;
    }
  };
  for (size_t i = 0; i < comparison.results.size(); ++i) {
    const PairResult& result = comparison.results[i];
    const bool bad = result.state == PairState::kBad || result.state == PairState::kIncomparable;
    each_module(all->answer.reference.records[result.pair.reference].key.name, [&](ModuleNode& node) {
      ++node.tensors;
      node.bad += bad;
      if (bad && node.first < 0) node.first = static_cast<int64_t>(i);
      const double limits = result.in_floors / comparison.floor_factor;
      if (!(limits <= node.worst)) node.worst = limits;
    });
  }
  for (const size_t i : comparison.only_reference)
    each_module(all->answer.reference.records[i].key.name, [](ModuleNode& node) { ++node.alone_reference; });
  for (const size_t i : comparison.only_candidate)
    each_module(all->answer.candidate.records[i].key.name, [](ModuleNode& node) { ++node.alone_candidate; });
  Json modules = Json::array();
  for (const std::string& path : order) {
    const ModuleNode& node = nodes[path];
    modules.push_back({{"module", path},
                       {"tensors", node.tensors},
                       {"different", node.bad},
                       {"worst_in_limits", json_number(node.worst)},
                       {"first_row", node.first < 0 ? Json() : Json(node.first)},
                       {"only_reference", node.alone_reference},
                       {"only_candidate", node.alone_candidate}});
  }
  return {{"verdict", comparison.verdict}, {"modules", std::move(modules)}, {"factor", comparison.floor_factor}};
}

const PairResult& row_asked_for(const Compared& all, const Json& arguments) {
  const auto row = static_cast<size_t>(arguments["row"].get<int64_t>());
  if (row >= all.answer.comparison.results.size())
    fail(Code::kNotFound, "compare heat", "there is no such row",
         {.expected = "0 to " + std::to_string(static_cast<int64_t>(all.answer.comparison.results.size()) - 1)});
  return all.answer.comparison.results[row];
}

Json compare_heat(Service& service, const Json& arguments, CallControl&) {
  const auto all = compared(service, arguments);
  const PairResult& result = row_asked_for(*all, arguments);
  const RecordedTensor& r = all->answer.reference.records[result.pair.reference];
  const RecordedTensor& c = all->candidate_in_layout.records[result.pair.candidate];
  const std::string slice = text_argument(arguments, "slice");
  if (!r.load && !c.load)
    fail(Code::kNotFound, "compare heat", "only the statistics of this tensor were kept",
         {.hint = "recording it in full: lockstep record --full NAME"});
  const auto load = [&](const RecordedTensor& record) {
    const Tensor tensor = record.load();
    return slice.empty() ? tensor : apply_slice(tensor, slice);
  };
  std::optional<Tensor> mine, yours;
  if (r.load) mine = load(r);
  if (c.load) yours = load(c);
  const int64_t height = arguments["height"].get<int64_t>(), width = arguments["width"].get<int64_t>();
  const MapWindow window = window_from(arguments);
  Json out{{"name", r.key.name}}, planes = Json::object();
  std::vector<uint8_t> cells;
  const auto add = [&](const char* name, const HeatMap& map) {
    planes[name] = json_from(map);
    append_cells(cells, map);
  };
  if (mine && yours && mine->shape() == yours->shape()) {
    const HeatMaps maps = heat_maps(*mine, *yours, window, height, width);
    add("reference", maps.reference), add("candidate", maps.candidate), add("difference", maps.difference);
  } else {
    if (mine) add("reference", heat_map(*mine, window, height, width));
    // Another shape has another window: it is shown whole.
    if (yours) add("candidate", heat_map(*yours, mine ? MapWindow{} : window, height, width));
  }
  out["planes"] = std::move(planes);
  out["shape"] = mine ? Json(mine->shape()) : Json(yours->shape());
  std::vector<const Tensor*> sides;
  for (const auto* side : {&mine, &yours})
    if (*side) sides.push_back(&**side);
  const auto histogram = arguments["histogram"].get<bool>() ? value_histogram(sides, kBins) : std::nullopt;
  if (histogram) {
    out["histogram"] = {{"low", json_number(histogram->low)},
                        {"high", json_number(histogram->high)},
                        {"sampled", histogram->sampled},
                        {"looked_at", histogram->looked_at}};
    out["histogram"][mine ? "reference" : "candidate"] = histogram->counts[0];
    if (histogram->counts.size() > 1) out["histogram"]["candidate"] = histogram->counts[1];
  }
  out["cells"] = Json::binary(std::move(cells));
  return out;
}

uint8_t level(double value) {
  return static_cast<uint8_t>(std::lround(std::clamp(value, 0.0, 255.0)));
}

Json compare_picture(Service& service, const Json& arguments, CallControl&) {
  const auto all = compared(service, arguments);
  const std::vector<ImagePair>& images = all->answer.comparison.images;
  const auto number = static_cast<size_t>(arguments["image"].get<int64_t>());
  if (number >= images.size())
    fail(Code::kNotFound, "compare picture", "there is no such picture",
         {.expected = std::to_string(images.size()) + " pictures, from 0"});
  const Pair& pair = all->answer.comparison.results[images[number].result].pair;
  const Pictures shown =
      pictures_of(all->answer.reference.records[pair.reference], all->answer.candidate.records[pair.candidate]);
  const Values &a = shown.reference.at(images[number].item), &b = shown.candidate.at(images[number].item);
  const std::string side = text_argument(arguments, "side");
  if (side == "difference" && a.shape != b.shape)
    fail(Code::kUnsupported, "compare picture", "pictures of two sizes have no difference");
  const Values& form = side == "candidate" ? b : a;
  const int64_t height = form.shape[0], width = form.shape[1], channels = form.shape[2];
  const double gain = arguments["gain"].get<double>();
  std::vector<uint8_t> pixels;
  pixels.reserve(static_cast<size_t>(height * width * 3));
  for (int64_t i = 0; i < height * width; ++i)
    for (int64_t k = 0; k < 3; ++k) {
      const auto at = static_cast<size_t>(i * channels + (channels < 3 ? 0 : k));
      pixels.push_back(level(side == "difference" ? gain * std::fabs(b.v[at] - a.v[at]) : form.v[at]));
    }
  const std::string png = encode_png(Tensor::from<uint8_t>({height, width, 3}, std::span<const uint8_t>(pixels)), {});
  return {{"name", images[number].name},
          {"psnr", json_number(images[number].psnr)},
          {"ssim", json_number(images[number].ssim)},
          {"width", width},
          {"height", height},
          {"type", "image/png"},
          {"png", Json::binary({png.begin(), png.end()})}};
}

Json compare_ledger(Service& service, const Json& arguments, CallControl&) {
  const auto view = [&](const char* name) { return view_of(service.opened().run(text_argument(arguments, name))); };
  const std::string map = text_argument(arguments, "map");
  return json_from(make_ledger(view("reference"), view("candidate"), view("substituted"),
                               map.empty() ? std::vector<MapRule>() : read_map(map)));
}

}  // namespace

std::vector<Operation> compare_view_operations() {
  const auto with_question = [](std::vector<Argument> more) {
    std::vector<Argument> all = compare_operations().front().arguments;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  std::vector<Argument> heat = window_arguments();
  heat.insert(heat.begin(), {.name = "row",
                             .type = kInteger,
                             .help = "number of the pair, as in compare rows",
                             .required = true,
                             .least = 0,
                             .most = 1e9});
  heat.push_back(
      {.name = "histogram", .type = kBool, .help = "also return the distribution of both sides", .standard = false});
  const auto run = [](const char* name, const char* help) {
    return Argument{.name = name, .help = help, .required = true, .value = "RUN"};
  };
  return {
      {.name = "compare ledger",
       .help = "show which error each stage of a program creates and which it inherits, from three recorded runs",
       .arguments = {run("reference", "the run that is right"),
                     run("candidate", "the program as it is"),
                     run("substituted", "the program, run on the reference's tensors"),
                     {.name = "map",
                      .help = "JSON file that maps the candidate's names to the reference's",
                      .path = true,
                      .value = "FILE"}},
       .result = "entries:objects sources:array missing:strings notes:strings",
       .reads = true,
       .slow = true,
       .examples = {"curl -H @key \"$(cat "
                    "url)/v1/compare/ledger?reference=latest:good&candidate=latest:port&substituted=latest:fed\""},
       .call = &compare_ledger},
      {.name = "compare rows",
       .help = "show two compared runs as a table: one short row per pair, and the tensors without a partner",
       .arguments = with_question({limit_argument("rows", 1000, 100000), from_argument()}),
       .result = "summary:object columns:strings rows:array total:integer from:integer first:any images:objects "
                 "alone:object factor:number runs:object",
       .reads = true,
       .slow = true,
       .examples = {"curl -H @key \"$(cat url)/v1/compare/rows?reference=latest:good&candidate=latest:port\""},
       .call = &compare_rows},
      {.name = "compare tree",
       .help = "show two compared runs by module: how many tensors differ in each, and by how much",
       .arguments = with_question(
           {{.name = "under", .help = "only modules below this one"},
            {.name = "depth", .type = kInteger, .help = "levels of modules", .standard = 3, .least = 1, .most = 64}}),
       .result = "verdict:string modules:objects factor:number",
       .reads = true,
       .slow = true,
       .examples = {"curl -H @key \"$(cat url)/v1/compare/tree?reference=latest:good&candidate=latest:port\""},
       .call = &compare_tree},
      {.name = "compare heat",
       .help = "return a pair of tensors and their difference as grids of cells, one after the other",
       .arguments = with_question(heat),
       .result = "name:string planes:object shape:array histogram?:object cells:string",
       .reads = true,
       .slow = true,
       .examples = {"curl -H @key \"$(cat url)/v1/compare/heat?reference=latest:good&candidate=latest:port&row=0\""},
       .binary = "cells",
       .call = &compare_heat},
      {.name = "compare picture",
       .help = "return a picture that both runs drew, or the difference of the two, as a PNG",
       .arguments = with_question({{.name = "image",
                                    .type = kInteger,
                                    .help = "number of the picture, from 0",
                                    .standard = 0,
                                    .least = 0,
                                    .most = 1e6},
                                   {.name = "side",
                                    .help = "reference, candidate or difference",
                                    .standard = "difference",
                                    .choices = {"reference", "candidate", "difference"}},
                                   {.name = "gain",
                                    .type = kNumber,
                                    .help = "factor that amplifies the difference",
                                    .standard = 4,
                                    .least = 0.01,
                                    .most = 255}}),
       .result = "name:string psnr:any ssim:any width:integer height:integer type:string png:string",
       .reads = true,
       .slow = true,
       .examples = {"curl -H @key \"$(cat url)/v1/compare/picture?reference=latest:good&candidate=latest:port\""},
       .binary = "png",
       .call = &compare_picture},
  };
}

}  // namespace lockstep
