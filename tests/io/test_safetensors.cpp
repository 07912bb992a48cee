#include "io/safetensors.h"

#include <cstring>

#include "io/temp_folder.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

using SafetensorsTest = TempFolder;

std::string file_bytes(std::string_view header, size_t data_bytes) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xFF);
  return bytes + std::string(header) + std::string(data_bytes, '\0');
}

std::string rejection(std::string_view header, size_t data_bytes) {
  const std::string bytes = file_bytes(header, data_bytes);
  return error_of([&] { SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "x", nullptr); });
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(SafetensorsTest, RoundTripInTheOfficialOrder) {
  const NamedTensors tensors = {{"b", Tensor::from<bool>({3}, {true, false, true})},
                                {"z", Tensor::from<float>({2, 2}, {1, 2, 3, 4})},
                                {"a\"\n", Tensor::from<float>({}, {5})},
                                {"i", Tensor::from<int64_t>({1}, {-7})},
                                {"none", Tensor::empty(DType::kBF16, {0, 4})}};
  write_safetensors(file("x.safetensors"), tensors, {{"format", "pt"}});
  const auto read = SafetensorsFile::open(file("x.safetensors"));
  std::vector<std::string> names;
  for (const TensorInfo& info : read->tensors()) names.push_back(info.name);
  EXPECT_EQ(names, (std::vector<std::string>{"i", "a\"\n", "z", "none", "b"}));
  EXPECT_EQ(read->metadata().at("format"), "pt");
  for (const auto& [name, tensor] : tensors) {
    const Tensor back = read->tensor(name);
    EXPECT_EQ(back.shape(), tensor.shape());
    EXPECT_EQ(back.dtype(), tensor.dtype());
    EXPECT_EQ(to_doubles(back), to_doubles(tensor));
  }
  EXPECT_EQ(bytes_of(file("x.safetensors")).size() % 2, 1u);  // the three bools come last
}

TEST_F(SafetensorsTest, WritesAStridedViewPacked) {
  const Tensor matrix = Tensor::from<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  write_safetensors(file("t"), {{"t", matrix.transpose(0, 1)}});
  EXPECT_EQ(to_floats(SafetensorsFile::open(file("t"))->tensor("t")), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST_F(SafetensorsTest, MisalignedTensorsAreCopiedNotRefused) {
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  std::string bytes = file_bytes(header, 5);
  const float value = 2.5f;
  std::memcpy(bytes.data() + bytes.size() - 4, &value, 4);
  EXPECT_EQ(SafetensorsFile::open(put("m", bytes))->tensor("b").data<float>()[0], 2.5f);
}

TEST(Safetensors, RefusesWhatTheFormatForbids) {
  const std::string a = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(rejection("{" + a + "}", 8), "");
  EXPECT_TRUE(contains(rejection("{" + a + "}", 7), "cut short"));
  EXPECT_TRUE(contains(rejection("{" + a + "}", 9), "bytes follow"));
  EXPECT_TRUE(contains(rejection("{" + a + "," + a + "}", 8), "twice"));
  EXPECT_TRUE(contains(rejection("{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[7,8]}})", 8), "overlaps"));
  EXPECT_TRUE(contains(rejection("{" + a + R"(,"b":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}})", 10), "hole"));
  EXPECT_TRUE(contains(rejection(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8), "size"));
  EXPECT_TRUE(contains(rejection(R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", 8), "unsupported"));
  EXPECT_TRUE(contains(rejection(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8), "not a size"));
  EXPECT_TRUE(contains(rejection(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", 8), "not a size"));
  EXPECT_TRUE(contains(
      rejection(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4611686018427387904],"data_offsets":[0,8]}})", 8),
      "more elements"));
  EXPECT_TRUE(contains(rejection("{\"\xff\":1}", 0), "JSON"));
  EXPECT_TRUE(contains(rejection(R"({"__metadata__":{"a":1}})", 0), "strings"));
  EXPECT_TRUE(contains(rejection("[]", 0), "object"));
  EXPECT_EQ(rejection("{}", 0), "");
  const std::string empty;
  EXPECT_TRUE(
      contains(error_of([&] { SafetensorsFile::parse(std::as_bytes(std::span(empty)), "x", nullptr); }), "short"));
  const std::string huge("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10);
  EXPECT_TRUE(contains(error_of([&] { SafetensorsFile::parse(std::as_bytes(std::span(huge)), "x", nullptr); }),
                       "out of range"));
}

}  // namespace
}  // namespace lockstep
