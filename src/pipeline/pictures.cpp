#include "pipeline/pictures.h"

#include <cmath>

#include "base/error.h"
#include "tensor/rehearsal.h"

namespace lockstep {
namespace {

std::string text_of(int64_t width, int64_t height) {
  return std::to_string(width) + "x" + std::to_string(height);
}

// Python's round(value / unit) * unit: ties to even.
int64_t nearest_multiple(double value, int64_t unit) {
  return static_cast<int64_t>(std::nearbyint(value / static_cast<double>(unit))) * unit;
}

}  // namespace

PictureSize size_for_area(int64_t side, const Tensor& picture) {
  const double ratio = static_cast<double>(picture.dim(1)) / static_cast<double>(picture.dim(0));
  const double width = std::sqrt(static_cast<double>(side * side) * ratio), height = width / ratio;
  const PictureSize size{nearest_multiple(width, 32), nearest_multiple(height, 32)};
  if (size.width < 32 || size.height < 32)
    fail(Code::kBadInput, "edit", "a picture of " + text_of(picture.dim(1), picture.dim(0)) + " is too long and thin",
         {.expected = "sides of 32 pixels and more at an area of " + text_of(side, side),
          .got = text_of(size.width, size.height),
          .hint = "a part of the picture"});
  return size;
}

PictureSize floored(PictureSize size) {
  return {size.width / 16 * 16, size.height / 16 * 16};
}

Tensor resized(const Tensor& picture, PictureSize size) {
  return resize_picture(picture, size.height, size.width, Resampling::kPillowLanczos);
}

Tensor vae_pixels(const Tensor& picture) {
  const int64_t height = picture.dim(0), width = picture.dim(1), channels = picture.dim(2);
  Tensor out = Tensor::empty(DType::kF32, {1, channels, 1, height, width});
  if (rehearsing()) return out;
  const uint8_t* from = picture.data<uint8_t>();
  float* to = out.mutable_data<float>();
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < height * width; ++i)
      to[c * height * width + i] = 2.0f * (static_cast<float>(from[i * channels + c]) / 255.0f) - 1.0f;
  return out;
}

ImageProcessor read_image_processor(const fs::path& folder) {
  const fs::path nested = folder / "processor_config.json", own = folder / "preprocessor_config.json";
  const bool whole = fs::exists(nested) && models::read_config(nested, "").has("image_processor");
  const models::ConfigReader reader =
      whole ? models::read_config(nested, "").section("image_processor") : models::read_config(own, "");
  ImageProcessor processor;
  processor.patch = reader.integer_or("patch_size", processor.patch, 1, 1024);
  processor.temporal_patch = reader.integer_or("temporal_patch_size", processor.temporal_patch, 1, 16);
  processor.merge = reader.integer_or("merge_size", processor.merge, 1, 16);
  constexpr int64_t kMostPixels = int64_t{1} << 30;
  if (reader.has("size")) {
    const models::ConfigReader size = reader.section("size");
    if (size.has("shortest_edge")) processor.min_pixels = size.integer("shortest_edge", 1, kMostPixels);
    if (size.has("longest_edge")) processor.max_pixels = size.integer("longest_edge", 1, kMostPixels);
  }
  if (reader.has("min_pixels")) processor.min_pixels = reader.integer("min_pixels", 1, kMostPixels);
  if (reader.has("max_pixels")) processor.max_pixels = reader.integer("max_pixels", 1, kMostPixels);
  processor.mean =
      reader.has("image_mean") ? reader.numbers("image_mean") : std::vector<double>{0.48145466, 0.4578275, 0.40821073};
  processor.std =
      reader.has("image_std") ? reader.numbers("image_std") : std::vector<double>{0.26862954, 0.26130258, 0.27577711};
  if (processor.mean.size() != 3) reader.refuse("image_mean", "three values");
  if (processor.std.size() != 3) reader.refuse("image_std", "three values");
  processor.rescale = reader.number_or("rescale_factor", processor.rescale);
  for (const char* flag : {"do_resize", "do_rescale", "do_normalize", "do_convert_rgb"})
    if (!reader.boolean_or(flag, true)) reader.refuse(flag, "true");
  if (reader.number_or("resample", 3) != 3) reader.refuse("resample", "3 (bicubic)");
  // Qwen2VLImageProcessor, with or without Fast, is torchvision's in transformers 5; only the class with Pil in its
  // name resizes with Pillow.
  if (reader.text_or("image_processor_type", "").ends_with("Pil")) processor.resampling = Resampling::kPillowBicubic;
  return processor;
}

PictureSize ImageProcessor::smart_resize(int64_t height, int64_t width) const {
  const auto h = static_cast<double>(height), w = static_cast<double>(width);
  if (std::max(h, w) / std::min(h, w) > 200)
    fail(Code::kBadInput, "edit",
         "a picture of " + text_of(width, height) + " is too long and thin for the vision tower",
         {.expected = "sides that differ by a factor of at most 200", .hint = "a part of the picture"});
  const int64_t factor = patch * merge;
  const auto unit = static_cast<double>(factor);
  PictureSize size{nearest_multiple(w, factor), nearest_multiple(h, factor)};
  if (size.height * size.width > max_pixels) {
    const double beta = std::sqrt(static_cast<double>(height * width) / static_cast<double>(max_pixels));
    const auto shrunk = [&](double side) {
      return std::max(factor, static_cast<int64_t>(std::floor(side / beta / unit)) * factor);
    };
    size = {shrunk(w), shrunk(h)};
  } else if (size.height * size.width < min_pixels) {
    const double beta = std::sqrt(static_cast<double>(min_pixels) / static_cast<double>(height * width));
    const auto grown = [&](double side) { return static_cast<int64_t>(std::ceil(side * beta / unit)) * factor; };
    size = {grown(w), grown(h)};
  }
  if (size.height < factor || size.width < factor)
    fail(Code::kBadInput, "edit", "a picture of " + text_of(width, height) + " leaves nothing for the vision tower",
         {.expected = "at least " + text_of(factor, factor), .got = text_of(size.width, size.height)});
  return size;
}

VisionInput ImageProcessor::patches(const std::vector<Tensor>& pictures) const {
  VisionInput input;
  std::vector<Tensor> sized;
  int64_t count = 0;
  for (const Tensor& picture : pictures) {
    const PictureSize size = smart_resize(picture.dim(0), picture.dim(1));
    sized.push_back(resize_picture(picture, size.height, size.width, resampling));
    input.grids.push_back({size.height / patch, size.width / patch});
    count += input.grids.back().patches();
  }
  input.patches = Tensor::empty(DType::kF32, {count, 3 * temporal_patch * patch * patch});
  if (rehearsing()) return input;
  // Each of the 256 values of a channel, scaled in the library's own order of roundings.
  std::vector<float> values(3 * 256);
  for (size_t c = 0; c < 3; ++c)
    for (size_t v = 0; v < 256; ++v) {
      if (resampling == Resampling::kPillowBicubic) {
        const auto unit = static_cast<float>(static_cast<double>(v) * rescale);
        values[c * 256 + v] = (unit - static_cast<float>(mean[c])) / static_cast<float>(std[c]);
      } else {
        const auto inverse = static_cast<float>(1.0 / rescale);
        values[c * 256 + v] =
            (static_cast<float>(v) - static_cast<float>(mean[c]) * inverse) / (static_cast<float>(std[c]) * inverse);
      }
    }
  float* to = input.patches.mutable_data<float>();
  for (size_t p = 0; p < sized.size(); ++p) {
    const uint8_t* pixels = sized[p].data<uint8_t>();
    const int64_t width = sized[p].dim(1);
    const auto one_patch = [&](int64_t row, int64_t column) {  // [channel, time, y, x]
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t t = 0; t < temporal_patch; ++t)
          for (int64_t y = row * patch; y < (row + 1) * patch; ++y)
            for (int64_t x = column * patch; x < (column + 1) * patch; ++x)
              *to++ = values[static_cast<size_t>(c * 256 + pixels[(y * width + x) * 3 + c])];
    };
    const models::PatchGrid& grid = input.grids[p];
    for (int64_t top = 0; top < grid.height; top += merge)
      for (int64_t left = 0; left < grid.width; left += merge)
        for (int64_t row = top; row < top + merge; ++row)
          for (int64_t column = left; column < left + merge; ++column) one_patch(row, column);
  }
  return input;
}

}  // namespace lockstep
