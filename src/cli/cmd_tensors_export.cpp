// lockstep tensors export: tensors, or slices of them, into another file.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/number_text.h"
#include "base/text.h"
#include "cli/cmd_tensors.h"
#include "cli/tensor_selection.h"
#include "io/npy.h"
#include "io/npz.h"
#include "io/safetensors.h"
#include "io/torch_file.h"

namespace lockstep {
namespace {

struct ExportOptions {
  TensorSelection selection;
  std::string output, dtype;
};

DType parse_dtype(const std::string& name) {
  if (const std::optional<DType> dtype = dtype_from_name(name)) return *dtype;
  fail(Code::kUsage, "export", fmt::format("'{}' is no dtype", name),
       {.expected = "f64 f32 f16 bf16 f8_e4m3fn f8_e5m2 i8..i64 u8..u64 bool"});
}

// Whether a slice leaves the last axis as it is: there lie the two parts of complex numbers.
bool keeps_last_axis(std::string_view slice, size_t rank) {
  if (slice.empty()) return true;
  std::vector<std::string> items(1);
  for (const char c : slice) {
    if (c == ',')
      items.emplace_back();
    else if (c != '[' && c != ']' && c != ' ')
      items.back() += c;
  }
  const bool any = std::find(items.begin(), items.end(), "...") != items.end();
  return items.back() == ":" || items.back() == "..." || (!any && items.size() < rank);
}

void run_export(App& app, ExportOptions& options) {
  options.selection.settle();
  const auto source = open_tensors(options.selection.path);
  const std::vector<const TensorInfo*> selected = select_tensors(*source, options.selection.name);
  const fs::path output = options.output;
  NamedTensors tensors;
  ComplexNames complex;
  for (const TensorInfo* info : selected) {
    const Tensor tensor = load_selected(*source, *info, options.selection.slice);
    const Tensor wanted = options.dtype.empty() ? tensor : tensor.to(parse_dtype(options.dtype));
    tensors.emplace_back(info->name, wanted.contiguous());
    if (info->complex && options.dtype.empty() && keeps_last_axis(options.selection.slice, info->shape.size()))
      complex.insert(info->name);
  }
  if (output.extension() == ".npy") {
    if (tensors.size() != 1)
      fail(Code::kUsage, "export", fmt::format("a .npy file holds one tensor, and {} are selected", tensors.size()),
           {.hint = "a name, or --output with .safetensors"});
    write_npy(output, tensors[0].second, !complex.empty());
  } else if (output.extension() == ".safetensors") {
    write_safetensors(output, tensors, source->metadata(), complex);
  } else if (output.extension() == ".npz") {
    write_npz(output, tensors, complex);
  } else if (output.extension() == ".pt") {
    write_torch(output, tensors, complex);
  } else {
    fail(Code::kUsage, "export", fmt::format("'{}' is no format to write", output.extension().string()),
         {.expected = ".npy, .npz, .safetensors or .pt"});
  }
  uint64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.bytes();
  if (app.global.json)
    print_json({{"output", options.output}, {"tensors", tensors.size()}, {"bytes", bytes}});
  else
    print("{}: {} tensors, {}\n", options.output, tensors.size(), text_from_bytes(bytes));
}

}  // namespace

void add_tensors_export(App& app, CLI::App& group) {
  CLI::App* command =
      group.add_subcommand("export", "write tensors, or slices of them, to .npy, .npz, .safetensors or .pt");
  command->footer(
      "lockstep tensors export model.safetensors blocks.0.norm.weight --output weight.npy\n"
      "lockstep tensors export latents.npy '[0, ::2]' --output half.npy --dtype f32\n"
      "lockstep tensors export checkpoint/ '*.bias' --output biases.safetensors");
  auto options = std::make_shared<ExportOptions>();
  options->selection.add_to(*command);
  command->add_option("-o,--output", options->output, "the file to write; replaced whole or not at all")
      ->required()
      ->type_name("FILE");
  command->add_option("--dtype", options->dtype, "convert to this dtype, rounding to nearest even")->type_name("DTYPE");
  command->callback([&app, options] { run_export(app, *options); });
}

}  // namespace lockstep
