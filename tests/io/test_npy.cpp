#include "io/npy.h"

#include <cstring>

#include "io/temp_folder.h"
#include "tensor/convert.h"

namespace lockstep {
namespace {

using NpyTest = TempFolder;

std::string npy(std::string_view dictionary, std::string_view data, char version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += {version, 0, static_cast<char>(dictionary.size() & 0xFF), static_cast<char>(dictionary.size() >> 8)};
  if (version > 1) bytes += std::string(2, '\0');
  return bytes + std::string(dictionary) + std::string(data);
}

Tensor parse(const std::string& bytes, std::optional<DType> void_dtype = std::nullopt) {
  return parse_npy(std::as_bytes(std::span(bytes)), "x", nullptr, void_dtype).clone();
}

TEST_F(NpyTest, RoundTripOfEveryDtypeAndRank) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    for (const Shape& shape : {Shape{}, Shape{3}, Shape{2, 3}, Shape{2, 0, 3}}) {
      Tensor tensor = Tensor::zeros(dtype, shape);
      if (dtype == DType::kBool && tensor.numel() > 1) tensor.mutable_data<bool>()[1] = true;
      write_npy(file("x.npy"), tensor);
      const Tensor back = read_npy(file("x.npy"), dtype);
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.shape(), shape);
      EXPECT_EQ(to_doubles(back), to_doubles(tensor));
    }
  }
}

TEST_F(NpyTest, ViewsAreWrittenPacked) {
  const Tensor matrix = Tensor::from<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  write_npy(file("x.npy"), matrix.transpose(0, 1));
  EXPECT_EQ(to_floats(read_npy(file("x.npy"))), (std::vector<float>{1, 4, 2, 5, 3, 6}));
}

TEST(Npy, FortranOrderAndBigEndian) {
  const Tensor fortran = parse(
      npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }\n", std::string_view("\1\4\2\5\3\6", 6), 2));
  EXPECT_EQ(to_floats(fortran), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  const Tensor big =
      parse(npy("{'descr': '>i4', 'fortran_order': False, 'shape': (1,)}", std::string_view("\0\0\1\2", 4)));
  EXPECT_EQ(big.data<int32_t>()[0], 258);
}

TEST(Npy, VoidElementsAreWhatTheCallerSays) {
  const std::string bf16 =
      npy("{'descr': '<V2', 'fortran_order': False, 'shape': ()}", std::string_view("\x80\x3f", 2));
  EXPECT_EQ(parse(bf16).dtype(), DType::kBF16);
  EXPECT_EQ(parse(bf16, DType::kF16).dtype(), DType::kF16);
  EXPECT_NE(error_of([&] { parse(bf16, DType::kF32); }), "");
  const std::string fp8 = npy("{'descr': '|V1', 'fortran_order': False, 'shape': ()}", "\x38");
  EXPECT_EQ(parse(fp8).dtype(), DType::kU8);
  EXPECT_EQ(to_floats(parse(fp8, DType::kF8E4M3))[0], 1.0f);
}

TEST(Npy, BoolBytesBecomeZeroOrOne) {
  const Tensor odd =
      parse(npy("{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", std::string_view("\0\7\xff", 3)));
  EXPECT_EQ(std::memcmp(odd.strided_data(), "\0\1\1", 3), 0);
}

TEST(Npy, RefusesDamage) {
  const std::string good = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }";
  EXPECT_EQ(error_of([&] { parse(npy(good, "ab")); }), "");
  const std::string whole = npy(good, "ab");
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(error_of([&] { parse(whole.substr(0, size)); }), "") << size;
  EXPECT_NE(error_of([&] { parse(whole + "c"); }).find("follow"), std::string::npos);
  for (const std::string bad :
       {"{'descr': '|u1', 'fortran_order': False}", "{'descr': '|u1', 'fortran_order': False, 'shape': (2)}",
        "{'descr': '|u1', 'fortran_order': 0, 'shape': (2,)}", "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (9223372036854775808,)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), 'x': 1}",
        "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': [('a', '|u1')], 'fortran_order': False, 'shape': (2,)}", "[1]", "", "{", "{'descr"})
    EXPECT_NE(error_of([&] { parse(npy(bad, "ab")); }), "") << bad;
}

}  // namespace
}  // namespace lockstep
