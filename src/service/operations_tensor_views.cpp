// runs tensors, tensors slice, heat, histogram, channels: what a view of a tensor is made of. All are bounded by what
// is looked at, not by the size of the tensor.
#include <fmt/format.h>

#include <cstring>

#include "base/error.h"
#include "base/names.h"
#include "measure/slice_statistics.h"
#include "measure/value_histogram.h"
#include "service/groups.h"
#include "service/heat_json.h"
#include "service/run_json.h"
#include "service/service.h"
#include "service/tensor_pick.h"
#include "tensor/convert.h"
#include "tensor/index_expression.h"

namespace lockstep {
namespace {

using enum ArgumentType;

constexpr int64_t kMostSliceBytes = 8 << 20, kMostChannels = 4096;

Tensor tensor_of_run(Service& service, const Json& arguments) {
  const auto run = service.opened().run(text_argument(arguments, "run"));
  const Record* found = nullptr;
  if (arguments.contains("seq")) {
    for (const Record& record : run->records())
      if (record.seq == arguments["seq"].get<int64_t>()) found = &record;
  } else {
    for (const Record& record : run->records())
      if (!found && record.key.name == text_argument(arguments, "name") &&
          (!arguments.contains("step") || record.key.step == arguments["step"].get<int64_t>()))
        found = &record;
  }
  if (!found)
    fail(Code::kNotFound, "tensors", "the run has no such record",
         {.expected = "a seq or a name of its records", .hint = "lockstep runs show " + run->id()});
  if (!run->has_values(*found))
    fail(Code::kNotFound, "tensors", "only the statistics of this tensor were kept",
         {.hint = "recording it in full: lockstep record --full NAME"});
  return run->tensor(*found);
}

// `run` with `seq` or `name`, or `path` with `name`; then the slice.
Tensor picked(Service& service, const Json& arguments) {
  const bool of_run = arguments.contains("run");
  if (of_run == arguments.contains("path"))
    fail(Code::kBadInput, "tensors", "which tensor is meant is not clear", {.expected = "either run or path"});
  const std::string slice = text_argument(arguments, "slice");
  if (of_run) {
    const Tensor tensor = tensor_of_run(service, arguments);
    return slice.empty() ? tensor : apply_slice(tensor, slice);
  }
  const auto source = open_tensors(text_argument(arguments, "path"));
  return load_selected(*source, select_one(*source, text_argument(arguments, "name")), slice);
}

Json with_form(const Tensor& tensor, Json more) {
  Json out{{"dtype", dtype_name(tensor.dtype())}, {"shape", tensor.shape()}};
  out.update(more);
  return out;
}

Json tensors_slice(Service& service, const Json& arguments, CallControl&) {
  const Tensor tensor = picked(service, arguments);
  const DType dtype = arguments["as"] == "f32" ? DType::kF32 : tensor.dtype();
  const int64_t bytes = tensor.numel() * static_cast<int64_t>(dtype_bytes(dtype));
  if (bytes > kMostSliceBytes)
    fail(Code::kBadInput, "tensors slice", fmt::format("{} bytes are too many for one answer", bytes),
         {.expected = fmt::format("at most {}", kMostSliceBytes), .hint = "a smaller slice, or tensors heat"});
  const Tensor packed = tensor.contiguous();
  std::vector<uint8_t> out(static_cast<size_t>(bytes));
  if (bytes) convert_elements(packed.strided_data(), packed.dtype(), out.data(), dtype, packed.numel());
  return {{"dtype", dtype_name(dtype)}, {"shape", tensor.shape()}, {"bytes", Json::binary(std::move(out))}};
}

Json tensors_heat(Service& service, const Json& arguments, CallControl&) {
  const Tensor tensor = picked(service, arguments);
  const HeatMap map =
      heat_map(tensor, window_from(arguments), arguments["height"].get<int64_t>(), arguments["width"].get<int64_t>());
  std::vector<uint8_t> cells;
  append_cells(cells, map);
  Json out = with_form(tensor, json_from(map));
  out["cells"] = Json::binary(std::move(cells));
  return out;
}

Json tensors_histogram(Service& service, const Json& arguments, CallControl&) {
  const Tensor tensor = picked(service, arguments);
  const Tensor* const sides[] = {&tensor};
  const auto histogram = value_histogram(sides, static_cast<size_t>(arguments["bins"].get<int64_t>()));
  if (!histogram)
    return with_form(
        tensor, {{"low", nullptr}, {"high", nullptr}, {"sampled", false}, {"looked_at", 0}, {"counts", Json::array()}});
  return with_form(tensor, {{"low", json_number(histogram->low)},
                            {"high", json_number(histogram->high)},
                            {"sampled", histogram->sampled},
                            {"looked_at", histogram->looked_at},
                            {"counts", histogram->counts[0]}});
}

Json tensors_channels(Service& service, const Json& arguments, CallControl&) {
  const Tensor tensor = picked(service, arguments);
  const int64_t rank = static_cast<int64_t>(tensor.rank()), axis = arguments["axis"].get<int64_t>();
  if (axis < -rank || axis >= rank)
    fail(Code::kBadInput, "tensors channels", "there is no such axis",
         {.expected = fmt::format("{} to {}", -rank, rank - 1), .got = std::to_string(axis)});
  const SliceStatistics all = slice_statistics(tensor, static_cast<int>(axis < 0 ? axis + rank : axis), kMostChannels);
  Json out = with_form(tensor, {{"axis", axis < 0 ? axis + rank : axis}, {"indices", all.indices}});
  const auto numbers = [](const std::vector<double>& values) {
    Json list = Json::array();
    for (const double value : values) list.push_back(json_number(value));
    return list;
  };
  out.update({{"mean", numbers(all.mean)},
              {"std", numbers(all.std)},
              {"min", numbers(all.min)},
              {"max", numbers(all.max)},
              {"bad", all.bad},
              {"sampled", all.sampled},
              {"looked_at", all.looked_at}});
  return out;
}

// A row is an array: ten thousand of them must stay light.
Json runs_tensors(Service& service, const Json& arguments, CallControl&) {
  const auto run = service.opened().run(text_argument(arguments, "run"));
  const std::string only = text_argument(arguments, "only");
  const auto from = arguments["from"].get<int64_t>(), limit = arguments["limit"].get<int64_t>();
  int64_t total = 0;
  Json rows = Json::array();
  for (const Record& record : run->records()) {
    if (!only.empty() && !glob_match(only, record.key.name)) continue;
    if (const int64_t number = total++; number < from || number >= from + limit) continue;
    std::string pass;
    for (const auto& [key, value] : record.key.tags) pass += (pass.empty() ? "" : " ") + value;
    Json row = {record.seq,
                record.key.name,
                role_name(record.role),
                record.key.step,
                record.key.hit,
                pass,
                record.dtype ? std::string(dtype_name(*record.dtype)) : record.dtype_text,
                record.shape,
                run->has_values(record),
                record.secs};
    if (const auto& s = record.stats)
      for (Json value :
           {json_number(s->min), json_number(s->max), json_number(s->mean), json_number(s->std), Json(s->nan + s->inf)})
        row.push_back(std::move(value));
    rows.push_back(std::move(row));
  }
  return {{"run", run->id()},
          {"name", run->name()},
          {"status", run->status()},
          {"path", run->path().string()},
          {"columns",
           {"seq", "name", "role", "step", "hit", "pass", "dtype", "shape", "kept", "secs", "min", "max", "mean", "std",
            "not_finite"}},
          {"rows", std::move(rows)},
          {"total", total},
          {"from", from}};
}

std::vector<Argument> tensor_arguments(std::vector<Argument> more) {
  std::vector<Argument> all{
      {.name = "run", .help = "id, unique prefix, latest, latest:NAME, or a path", .value = "RUN"},
      {.name = "path",
       .help = "instead of a run: a tensor file, a checkpoint or a folder",
       .path = true,
       .value = "FILE"},
      {.name = "name", .help = "the tensor's name"},
      {.name = "seq", .type = kInteger, .help = "in a run: the number of the record", .least = 0, .most = 1e15},
      {.name = "step", .type = kInteger, .help = "in a run: the denoising step", .least = -1, .most = 1e9}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

std::vector<Operation> tensor_view_operations() {
  const Argument slice{.name = "slice", .help = "NumPy-like: [0, :, -1, ::2]"};
  const std::string form = "dtype:string shape:array ";
  return {
      {.name = "runs tensors",
       .help = "list the tensors of a run: one short row each, with statistics",
       .arguments = {{.name = "run", .help = "id, unique prefix, latest, latest:NAME, or a path", .required = true},
                     {.name = "only", .help = "glob of record names"},
                     limit_argument("rows", 1000, 100000),
                     from_argument()},
       .result =
           "run:string name:string status:string path:string columns:strings rows:array total:integer from:integer",
       .reads = true,
       .examples = {"curl -H @key \"$(cat url)/v1/runs/tensors?run=latest&limit=20\""},
       .call = &runs_tensors},
      {.name = "tensors slice",
       .help = "return a tensor or a slice of it as bytes, little-endian and packed",
       .arguments = tensor_arguments({slice,
                                      {.name = "as",
                                       .help = "stored: the tensor's own dtype; f32: as 32-bit floats",
                                       .standard = "stored",
                                       .choices = {"stored", "f32"}}}),
       .result = form + "bytes:string",
       .reads = true,
       .examples = {"curl -H @key \"$(cat url)/v1/tensors/slice?run=latest&name=image&slice=[0]\""},
       .binary = "bytes",
       .call = &tensors_slice},
      {.name = "tensors heat",
       .help = "return a tensor, or a window of it, as a grid; each cell holds its value farthest from zero",
       .arguments = tensor_arguments(window_arguments()),
       .result = form + "rows:integer columns:integer top:integer left:integer window_rows:integer "
                        "window_columns:integer height:integer width:integer limit:any sampled:boolean "
                        "looked_at:integer cells:string",
       .reads = true,
       .examples = {"curl -H @key \"$(cat url)/v1/tensors/heat?run=latest&name=noise_pred&step=0\""},
       .binary = "cells",
       .call = &tensors_heat},
      {.name = "tensors histogram",
       .help = "return a histogram of a tensor's values",
       .arguments = tensor_arguments(
           {slice,
            {.name = "bins", .type = kInteger, .help = "number of bars", .standard = 64, .least = 1, .most = 4096}}),
       .result = form + "low:any high:any sampled:boolean looked_at:integer counts:array",
       .reads = true,
       .examples = {"curl -H @key \"$(cat url)/v1/tensors/histogram?run=latest&name=noise_pred&step=0\""},
       .call = &tensors_histogram},
      {.name = "tensors channels",
       .help = "return the statistics of each slice of a tensor along one axis",
       .arguments = tensor_arguments({slice,
                                      {.name = "axis",
                                       .type = kInteger,
                                       .help = "the axis; -1 is the last",
                                       .standard = 0,
                                       .least = -16,
                                       .most = 15}}),
       .result = form + "axis:integer indices:array mean:array std:array min:array max:array bad:array sampled:boolean "
                        "looked_at:integer",
       .reads = true,
       .slow = true,
       .examples = {"curl -H @key \"$(cat url)/v1/tensors/channels?run=latest&name=noise_pred&step=0&axis=-1\""},
       .call = &tensors_channels},
  };
}

}  // namespace lockstep
