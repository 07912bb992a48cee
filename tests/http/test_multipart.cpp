#include "http/multipart.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"

namespace lockstep {
namespace {

class Multipart : public ::testing::Test {
 protected:
  void SetUp() override { folder_ = fs::temp_directory_path() / ("multipart-" + std::to_string(::getpid())); }
  void TearDown() override { fs::remove_all(folder_); }
  size_t spooled() const {
    std::error_code error;
    size_t n = 0;
    for (auto entry = fs::directory_iterator(folder_, error); !error && entry != fs::directory_iterator(); ++entry) ++n;
    return n;
  }
  fs::path folder_;
};

const std::string kForm =
    "preamble\r\n--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\na \"red\" circle\r\n--not the end\r\n"
    "--b\r\nContent-Disposition: form-data; name=\"empty\"\r\n\r\n\r\n"
    "--b\r\nContent-Type: image/png\r\ncontent-disposition: form-data; name=image; filename=\"../../x.png\"\r\n\r\n"
    "\x89PNG\r\n\r\n--c\r\n--b--\r\nepilogue";

TEST_F(Multipart, ReadsFieldsAndSpoolsFilesHoweverTheBytesArrive) {
  for (size_t piece = 1; piece <= kForm.size(); piece += piece < 40 ? 1 : 50) {
    MultipartParser parser("b", folder_);
    for (size_t at = 0; at < kForm.size(); at += piece) parser.feed(std::string_view(kForm).substr(at, piece));
    const std::vector<FormPart> parts = parser.finish();
    ASSERT_EQ(parts.size(), 3u) << piece;
    EXPECT_EQ(parts[0].name, "prompt");
    EXPECT_EQ(parts[0].text, "a \"red\" circle\r\n--not the end") << piece;
    EXPECT_EQ(parts[1].text, "");
    ASSERT_TRUE(parts[2].is_file);
    EXPECT_EQ(parts[2].file.parent_path(), folder_) << "the client's name is no path";
    EXPECT_EQ(read_text(parts[2].file, 1000), "\x89PNG\r\n\r\n--c");
    EXPECT_EQ(parts[2].file_bytes, 11u);
    fs::remove(parts[2].file);
  }
}

TEST_F(Multipart, AFormThatBreaksLeavesNothingBehind) {
  for (size_t end = 0; end + 15 < kForm.size(); ++end) {
    EXPECT_THROW(MultipartParser::read("b", folder_, std::string_view(kForm).substr(0, end)), Error) << end;
    ASSERT_EQ(spooled(), 0u) << end;
  }
}

TEST_F(Multipart, PassesNoBound) {
  const auto code_of = [&](const MultipartLimits& limits) {
    try {
      MultipartParser parser("b", folder_, limits);
      parser.feed(kForm);
      for (const FormPart& part : parser.finish())
        if (part.is_file) fs::remove(part.file);
      return Code::kInternal;
    } catch (const Error& error) {
      return error.code();
    }
  };
  EXPECT_EQ(code_of({}), Code::kInternal);
  EXPECT_EQ(code_of({.parts = 2}), Code::kMemory);
  EXPECT_EQ(code_of({.field_bytes = 10}), Code::kMemory);
  EXPECT_EQ(code_of({.file_bytes = 10}), Code::kMemory);
  EXPECT_EQ(code_of({.files = 0}), Code::kMemory);
  EXPECT_EQ(code_of({.part_head_bytes = 20}), Code::kBadInput);
  EXPECT_EQ(spooled(), 0u);
}

TEST_F(Multipart, TheBoundOfAHeadIsTheSameHoweverTheBytesArrive) {
  const auto accepted = [&](const std::string& form, size_t piece) {
    try {
      MultipartParser parser("b", folder_, {.part_head_bytes = 60});
      for (size_t at = 0; at < form.size(); at += piece) parser.feed(std::string_view(form).substr(at, piece));
      return parser.finish().size() == 1;
    } catch (const Error&) {
      return false;
    }
  };
  const std::string rest = "\r\n\r\nx\r\n--b--";
  const auto late = [&](size_t more) {
    std::string form(more, '-');
    return form.append("\r\n--b\r\nContent-Disposition: form-data; name=a").append(rest);
  };
  const auto long_head = [&](size_t more) {
    std::string form = "--b\r\nContent-Disposition: form-data; name=a";
    return form.append(more, 'a').append(rest);
  };
  for (size_t more = 0; more < 80; ++more)
    for (const std::string& form : {late(more), long_head(more)}) {
      const bool whole = accepted(form, form.size());
      for (const size_t piece : {1u, 2u, 3u, 7u, 64u}) EXPECT_EQ(accepted(form, piece), whole) << more << " " << piece;
    }
  EXPECT_TRUE(accepted(late(50), 1000));
  EXPECT_FALSE(accepted(late(70), 1000));
}

TEST(MultipartBoundary, IsFoundOrThereIsNone) {
  EXPECT_EQ(multipart_boundary("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(multipart_boundary("Multipart/Form-Data; charset=utf-8; boundary=\"a b\""), "a b");
  EXPECT_EQ(multipart_boundary("application/json; boundary=abc"), "");
  EXPECT_EQ(multipart_boundary("multipart/form-data"), "");
  EXPECT_EQ(multipart_boundary("multipart/form-data; boundary=" + std::string(71, 'x')), "");
}

}  // namespace
}  // namespace lockstep
