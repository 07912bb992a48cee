#include "io/image.h"

#include "io/image_codecs.h"
#include "io/temp_folder.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

using ImageTest = TempFolder;

Tensor gradient(DType dtype, int64_t height, int64_t width, int64_t channels) {
  Tensor pixels = Tensor::zeros(dtype, {height, width, channels});
  const auto fill = [&]<typename T>(T* out) {
    for (int64_t i = 0; i < pixels.numel(); ++i) out[i] = static_cast<T>(i * 7919 % (sizeof(T) == 1 ? 251 : 65521));
  };
  dtype == DType::kU8 ? fill(pixels.mutable_data<uint8_t>()) : fill(pixels.mutable_data<uint16_t>());
  return pixels;
}

TEST_F(ImageTest, PngKeepsEveryBitAndText) {
  for (const DType dtype : {DType::kU8, DType::kU16})
    for (const int64_t channels : {1, 3, 4}) {
      const Tensor pixels = gradient(dtype, 5, 7, channels);
      const std::map<std::string, std::string> text = {
          {"prompt", "a cat"}, {"Title", "Käse \xe2\x9c\x93"}, {"none", ""}};
      write_image(file("x.png"), {pixels, text});
      const Image back = read_image(file("x.png"));
      EXPECT_EQ(back.pixels.dtype(), dtype);
      EXPECT_EQ(back.pixels.shape(), pixels.shape());
      EXPECT_EQ(to_doubles(back.pixels), to_doubles(pixels));
      EXPECT_EQ(back.text, text);
    }
}

TEST_F(ImageTest, WebpAt100IsLosslessAndJpegIsClose) {
  const Tensor rgb = gradient(DType::kU8, 9, 6, 3), rgba = gradient(DType::kU8, 9, 6, 4);
  write_image(file("x.webp"), {rgb, {}}, 100);
  EXPECT_EQ(to_doubles(read_image(file("x.webp")).pixels), to_doubles(rgb));
  Tensor flat = Tensor::zeros(DType::kU8, {16, 16, 3});
  for (int64_t i = 0; i < flat.numel(); ++i) flat.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(40 + 60 * (i % 3));
  write_image(file("x.jpg"), {flat, {}});
  const Tensor back = read_image(file("x.jpg")).pixels;
  for (int64_t i = 0; i < flat.numel(); ++i) EXPECT_NEAR(back.data<uint8_t>()[i], flat.data<uint8_t>()[i], 2);
  EXPECT_NE(error_of([&] { write_image(file("x.jpg"), {rgba, {}}); }), "");
  EXPECT_NE(error_of([&] { write_image(file("x.gif"), {rgb, {}}); }), "");
  EXPECT_NE(error_of([&] { write_image(file("x.png"), {rgb.to(DType::kF32), {}}); }), "");
}

TEST_F(ImageTest, JpegAndWebpCarryTextAsExif) {
  const Tensor rgb = gradient(DType::kU8, 9, 6, 3), rgba = gradient(DType::kU8, 9, 6, 4);
  const std::map<std::string, std::string> text = {
      {"prompt", "a \"cat\" \xe7\x8b\x90"}, {"software", "x"}, {"none", ""}, {"lines", "a\nb"}};
  for (const char* name : {"x.jpg", "x.webp"}) {
    write_image(file(name), {rgb, text});
    const Image back = read_image(file(name));
    EXPECT_EQ(back.text, text) << name;
    EXPECT_EQ(back.pixels.shape(), rgb.shape()) << name;
  }
  write_image(file("a.webp"), {rgba, text}, 100);
  EXPECT_EQ(read_image(file("a.webp")).text, text);
  EXPECT_EQ(to_doubles(read_image(file("a.webp")).pixels.slice(2, 3, 4)), to_doubles(rgba.slice(2, 3, 4)));
}

TEST_F(ImageTest, ALongPromptIsCutWhereTheFormatEnds) {
  const Tensor rgb = gradient(DType::kU8, 9, 6, 3);
  std::string prompt;
  for (int i = 0; i < 60000; ++i) prompt += "\xe7\x8b\x90";
  write_image(file("x.jpg"), {rgb, {{"prompt", prompt}, {"seed", "7"}}});
  const Image back = read_image(file("x.jpg"));
  EXPECT_EQ(back.text.at("seed"), "7");
  EXPECT_GT(back.text.at("prompt").size(), 1000u);
  EXPECT_TRUE(prompt.starts_with(back.text.at("prompt")));
}

TEST_F(ImageTest, ATruncatedPictureIsAnErrorNotAGreyOne) {
  const Tensor pixels = gradient(DType::kU8, 32, 32, 3);
  for (const char* name : {"x.png", "x.jpg", "x.webp"}) {
    write_image(file(name), {pixels, {}});
    const std::string whole = bytes_of(file(name));
    for (size_t size = 0; size < whole.size(); size += 1 + whole.size() / 97) {
      const std::string part = whole.substr(0, size);
      EXPECT_NE(error_of([&] { parse_image(std::as_bytes(std::span(part)), name); }), "") << name << " " << size;
    }
  }
}

TEST(Exif, OrientationIsReadInBothByteOrdersAndBounded) {
  const std::string little("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0", 22);
  const std::string big("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0", 22);
  const auto orientation = [](const std::string& exif) { return exif_orientation(std::as_bytes(std::span(exif))); };
  EXPECT_EQ(orientation(little), 6);
  EXPECT_EQ(orientation(big), 6);
  EXPECT_EQ(orientation(std::string("Exif\0\0", 6) + little), 6);
  for (size_t size = 0; size < little.size(); ++size) EXPECT_EQ(orientation(little.substr(0, size)), 1);
  EXPECT_EQ(orientation(std::string("II*\0\xff\xff\xff\xff", 8)), 1);
}

}  // namespace
}  // namespace lockstep
