#include "service/tensor_picture.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/base64.h"
#include "base/error.h"
#include "io/image_codecs.h"
#include "tensor/tensor.h"

namespace lockstep {
namespace {

constexpr int64_t kMostPictureValues = 1 << 20;
constexpr int64_t kLeastSide = 256;  // smaller ones are shown with larger points
constexpr int64_t kMostSide = 4096;
constexpr int64_t kGap = 1;  // between tiles

using Colour = std::array<uint8_t, 3>;
constexpr Colour kNotFinite{255, 0, 255}, kBetween{40, 40, 40};
// Dark to bright evenly, and told apart by people who see few colours.
constexpr std::array<Colour, 6> kScale{
    {{68, 1, 84}, {65, 68, 135}, {42, 120, 142}, {34, 168, 132}, {122, 209, 81}, {253, 231, 37}}};

struct Numbers {
  int64_t tiles = 0, channels = 0, height = 0, width = 0;
  std::vector<float> values;  // [tiles, channels, height, width]
};

Numbers numbers_from(const Json& told) {
  const auto whole = [&](const char* name, int64_t most) {
    const Json value = told.is_object() ? told.value(name, Json(nullptr)) : Json(nullptr);
    if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > most)
      fail(Code::kCorrupt, "picture", std::string("the program's side gave no usable ") + name);
    return value.get<int64_t>();
  };
  Numbers numbers{whole("tiles", 64),
                  whole("channels", 3),
                  whole("height", kMostPictureValues),
                  whole("width", kMostPictureValues),
                  {}};
  if (numbers.channels == 2) fail(Code::kCorrupt, "picture", "two channels are no colour");
  const Json text = told.value("floats", Json(""));
  const auto bytes = text.is_string() ? bytes_from_base64(text.get_ref<const std::string&>()) : std::nullopt;
  const double wanted = 4.0 * static_cast<double>(numbers.tiles) * static_cast<double>(numbers.channels) *
                        static_cast<double>(numbers.height) * static_cast<double>(numbers.width);
  if (!bytes || wanted > 4.0 * kMostPictureValues || static_cast<double>(bytes->size()) != wanted)
    fail(Code::kCorrupt, "picture", "the values do not fit the sizes");
  numbers.values.resize(bytes->size() / 4);
  std::memcpy(numbers.values.data(), bytes->data(), bytes->size());
  return numbers;
}

Colour on_scale(double part) {
  const double at = std::clamp(part, 0.0, 1.0) * (kScale.size() - 1);
  const auto below = std::min<size_t>(static_cast<size_t>(at), kScale.size() - 2);
  Colour colour{};
  for (size_t k = 0; k < 3; ++k)
    colour[k] = static_cast<uint8_t>(
        std::lround(kScale[below][k] + (at - static_cast<double>(below)) * (kScale[below + 1][k] - kScale[below][k])));
  return colour;
}

}  // namespace

TensorPicture tensor_picture(const Json& told) {
  const Numbers numbers = numbers_from(told);
  TensorPicture picture;
  bool any = false;
  for (const float value : numbers.values) {
    if (!std::isfinite(value)) {
      ++picture.not_finite;
      continue;
    }
    picture.least = any ? std::min<double>(picture.least, value) : value;
    picture.most = any ? std::max<double>(picture.most, value) : value;
    any = true;
  }
  const double span = picture.most > picture.least ? picture.most - picture.least : 1;
  const auto across = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(numbers.tiles))));
  const int64_t down = (numbers.tiles + across - 1) / across;
  const int64_t columns = across * (numbers.width + kGap) - kGap, rows = down * (numbers.height + kGap) - kGap;
  // A row of numbers becomes a band; points are square otherwise.
  const int64_t point = std::max<int64_t>(1, kLeastSide / std::max(columns, rows));
  const int64_t tall = rows == 1 ? std::max<int64_t>(point, 32) : point;
  picture.width = columns * point;
  picture.height = rows * tall;
  if (picture.width > kMostSide * 64 || picture.height > kMostSide * 64)
    fail(Code::kBadInput, "picture", "the tensor is too long for a picture", {.hint = "a slice of it"});
  std::vector<uint8_t> pixels(static_cast<size_t>(picture.width * picture.height * 3));  // [height, width, 3]
  const int64_t plane = numbers.height * numbers.width;
  for (int64_t y = 0; y < rows; ++y)
    for (int64_t x = 0; x < columns; ++x) {
      const int64_t tile = y / (numbers.height + kGap) * across + x / (numbers.width + kGap);
      const int64_t row = y % (numbers.height + kGap), column = x % (numbers.width + kGap);
      Colour colour = kBetween;
      if (tile < numbers.tiles && row < numbers.height && column < numbers.width) {
        const float* at = numbers.values.data() + tile * numbers.channels * plane + row * numbers.width + column;
        bool finite = true;
        for (int64_t c = 0; c < numbers.channels; ++c) finite = finite && std::isfinite(at[c * plane]);
        if (!finite)
          colour = kNotFinite;
        else if (numbers.channels == 1)
          colour = on_scale((at[0] - picture.least) / span);
        else
          for (int64_t c = 0; c < 3; ++c)
            colour[static_cast<size_t>(c)] =
                static_cast<uint8_t>(std::lround((at[c * plane] - picture.least) / span * 255));
      }
      for (int64_t i = 0; i < tall; ++i)
        for (int64_t k = 0; k < point; ++k)
          std::copy(colour.begin(), colour.end(), pixels.data() + ((y * tall + i) * picture.width + x * point + k) * 3);
    }
  picture.png =
      encode_png(Tensor::from<uint8_t>({picture.height, picture.width, 3}, std::span<const uint8_t>(pixels)), {});
  return picture;
}

}  // namespace lockstep
