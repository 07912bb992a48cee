// lockstep tensors: list and info here, the other verbs in files of their own.
#include "cli/cmd_tensors.h"

#include <fmt/format.h>

#include <map>

#include "base/number_text.h"
#include "base/text.h"
#include "cli/table.h"
#include "cli/tensor_selection.h"

namespace lockstep {
namespace {

struct ListOptions {
  TensorSelection selection;
  int64_t limit = 100;
};

void run_list(App& app, ListOptions& options) {
  const auto source = open_tensors(options.selection.path);
  const std::vector<const TensorInfo*> selected = select_tensors(*source, options.selection.name);
  if (app.global.json) {
    Json document = {{"path", options.selection.path}, {"tensors", Json::array()}};
    for (const TensorInfo* info : selected) document["tensors"].push_back(json_from(*info));
    print_json(document);
    return;
  }
  const Terminal terminal(app.global);
  Table table({{"name", Table::Align::kLeft, true}, {"dtype"}, {"shape"}, {"size", Table::Align::kRight}});
  uint64_t bytes = 0;
  int64_t shown = 0;
  for (const TensorInfo* info : selected) {
    bytes += info->size_bytes;
    if (options.limit > 0 && shown == options.limit) continue;
    ++shown;
    table.add(
        {info->name, std::string(dtype_name(info->dtype)), to_string(info->shape), text_from_bytes(info->size_bytes)});
  }
  print("{}", table.text(terminal));
  const int64_t left = static_cast<int64_t>(selected.size()) - shown;
  if (left > 0) print("... {} more: name a glob, or --limit 0 for all\n", text_from_count(left));
  print("{} tensors, {}\n", text_from_count(static_cast<int64_t>(selected.size())), text_from_bytes(bytes));
}

Json info_of_source(const TensorSource& source) {
  uint64_t bytes = 0;
  int64_t elements = 0;
  std::map<std::string, int64_t> dtypes;
  std::map<std::string, bool> files;
  for (const TensorInfo& info : source.tensors()) {
    bytes += info.size_bytes;
    elements += checked_numel(info.shape);
    ++dtypes[std::string(dtype_name(info.dtype))];
    files[info.file.string()] = true;
  }
  Json metadata = Json::object();
  for (const auto& [key, value] : source.metadata()) append_member(metadata, key, value);
  Json by_dtype = Json::object();
  for (const auto& [dtype, count] : dtypes) by_dtype[dtype] = count;
  return {{"path", source.path().string()},
          {"tensors", source.tensors().size()},
          {"files", files.size()},
          {"elements", elements},
          {"bytes", bytes},
          {"dtypes", by_dtype},
          {"metadata", metadata}};
}

void print_source(const Terminal& terminal, const Json& info) {
  const auto line = [&](const char* name, const auto& value) {
    print("{}  {}\n", terminal.styled(fmt::format("{:<9}", name), Style::kDim), value);
  };
  line("path", info["path"].get<std::string>());
  line("tensors", text_from_count(info["tensors"].get<int64_t>()));
  line("files", text_from_count(info["files"].get<int64_t>()));
  line("elements", text_from_count(info["elements"].get<int64_t>()));
  line("size", text_from_bytes(info["bytes"].get<uint64_t>()));
  std::string dtypes;
  for (const auto& [dtype, count] : info["dtypes"].items())
    dtypes += fmt::format("{}{} x {}", dtypes.empty() ? "" : ", ", count.get<int64_t>(), dtype);
  line("dtypes", dtypes);
  constexpr size_t kMostMetadata = 20;
  size_t shown = 0;
  for (const auto& [key, value] : info["metadata"].items()) {
    if (shown++ == kMostMetadata) break;
    line("metadata", Text::of("{} = {}", shortened(Text::from(key), 100),
                              shortened(Text::from(value.get_ref<const std::string&>()), 200)));
  }
  if (const size_t all = info["metadata"].size(); all > kMostMetadata)
    line("metadata", fmt::format("... {} more: --json for all", all - kMostMetadata));
}

void print_tensor(const Terminal& terminal, const TensorInfo& info) {
  const auto line = [&](const char* name, const auto& value) {
    print("{}  {}\n", terminal.styled(fmt::format("{:<9}", name), Style::kDim), value);
  };
  line("name", info.name);
  line("dtype", std::string(dtype_name(info.dtype)));
  line("shape", to_string(info.shape));
  line("elements", text_from_count(checked_numel(info.shape)));
  line("size", text_from_bytes(info.size_bytes));
  line("file", info.file.string());
  line("offset", text_from_count(static_cast<int64_t>(info.offset_bytes)));
}

void run_info(App& app, TensorSelection& selection) {
  const auto source = open_tensors(selection.path);
  const Terminal terminal(app.global);
  if (selection.name.empty() && source->tensors().size() != 1) {
    const Json info = info_of_source(*source);
    if (app.global.json)
      print_json(info);
    else
      print_source(terminal, info);
    return;
  }
  const TensorInfo& info = select_one(*source, selection.name);
  if (app.global.json)
    print_json(json_from(info));
  else
    print_tensor(terminal, info);
}

}  // namespace

void add_tensors(App& app) {
  CLI::App* group = app.cli.add_subcommand("tensors", "inspect tensor files and folders, and compare them");
  group->require_subcommand(1);
  group->footer(
      "lockstep tensors list model.safetensors\n"
      "lockstep tensors show latents.npy '[0, :, -1, ::2]'\n"
      "lockstep tensors diff reference.npy candidate.npy");

  CLI::App* list = group->add_subcommand("list", "list names, dtypes, shapes and sizes");
  list->footer("lockstep tensors list model.safetensors\nlockstep tensors list checkpoint/ '*.attn.to_q.*' --json");
  auto list_options = std::make_shared<ListOptions>();
  list_options->selection.add_to(*list, TensorSelection::Slices::kNone);
  list->add_option("--limit", list_options->limit, "maximum number of rows; 0 for all")
      ->type_name("N")
      ->capture_default_str();
  list->callback([&app, list_options] { run_list(app, *list_options); });

  CLI::App* info =
      group->add_subcommand("info", "show the contents of a file or folder, or the location of one tensor");
  info->footer("lockstep tensors info checkpoint/\nlockstep tensors info model.safetensors blocks.0.attn.to_q.weight");
  auto info_options = std::make_shared<TensorSelection>();
  info_options->add_to(*info, TensorSelection::Slices::kNone);
  info->callback([&app, info_options] { run_info(app, *info_options); });

  add_tensors_show(app, *group);
  add_tensors_stats(app, *group);
  add_diff(app, *group, "diff", "compare two tensors, files or folders; exit status 0 if they match, 1 if they differ",
           "lockstep tensors diff reference.npy candidate.npy\n"
           "lockstep tensors diff a.safetensors b.safetensors '*.attn.*' --tolerance high\n"
           "lockstep tensors diff dumps/official dumps/port --tolerance 1e-4,1e-3 --json");
  add_tensors_clear(app, *group);
  add_tensors_export(app, *group);
}

}  // namespace lockstep
