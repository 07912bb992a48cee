#include "http/multipart.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "base/broken_pipe.h"
#include "base/error.h"
#include "http/small_letters.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse_form(const std::string& what) {
  fail(Code::kBadInput, "http", "the form cannot be read: " + what);
}

// The value of `name="..."` among the parameters behind a header's first word; null: there is none.
bool quoted_parameter(std::string_view line, std::string_view name, std::string& value) {
  size_t at = line.find(';');
  while (at != std::string_view::npos) {
    ++at;
    while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) ++at;
    const size_t equals = line.find('=', at);
    if (equals == std::string_view::npos) return false;
    const std::string key = in_small_letters(line.substr(at, equals - at));
    std::string text;
    size_t end = equals + 1;
    if (end < line.size() && line[end] == '"') {
      for (++end; end < line.size() && line[end] != '"'; ++end) {
        if (line[end] == '\\' && end + 1 < line.size()) ++end;
        text += line[end];
      }
      if (end == line.size()) return false;
      ++end;
    } else {
      while (end < line.size() && line[end] != ';') text += line[end++];
    }
    if (key == name) {
      value = text;
      return true;
    }
    at = line.find(';', end);
  }
  return false;
}

}  // namespace

std::string multipart_boundary(std::string_view content_type) {
  if (in_small_letters(content_type.substr(0, content_type.find(';'))) != "multipart/form-data") return {};
  std::string boundary;
  quoted_parameter(content_type, "boundary", boundary);
  while (!boundary.empty() && boundary.back() == ' ') boundary.pop_back();
  return boundary.size() > 70 ? std::string() : boundary;
}

MultipartParser::MultipartParser(const std::string& boundary, fs::path spool, const MultipartLimits& limits)
    : delimiter_("\r\n--" + boundary), spool_(std::move(spool)), limits_(limits), buffer_("\r\n") {}

MultipartParser::~MultipartParser() {
  if (file_ >= 0) ::close(file_);
  if (taken_) return;
  for (const FormPart& part : parts_)
    if (part.is_file) ::unlink(part.file.c_str());
  if (part_.is_file && !part_.file.empty()) ::unlink(part_.file.c_str());
}

void MultipartParser::feed(std::string_view bytes) {
  buffer_ += bytes;
  while (step()) {
  }
}

// Where the mark stands within the bound of a head; npos: it may still come. In whatever pieces the bytes arrive, the
// same forms are refused.
size_t MultipartParser::found_early(std::string_view mark, const char* refusal) const {
  const size_t at = buffer_.find(mark);
  const bool too_late =
      at == std::string::npos ? buffer_.size() >= limits_.part_head_bytes + mark.size() : at > limits_.part_head_bytes;
  if (too_late) refuse_form(refusal);
  return at;
}

bool MultipartParser::step() {
  switch (state_) {
    case State::kPreamble: {
      const size_t at = found_early(delimiter_, "no boundary at its start");
      if (at == std::string::npos) return false;
      buffer_.erase(0, at + delimiter_.size());
      state_ = State::kAfterBoundary;
      return true;
    }
    case State::kAfterBoundary:
      if (buffer_.size() < 2) return false;
      if (buffer_.starts_with("--")) {
        state_ = State::kEnd;
        buffer_.clear();
        return false;
      }
      if (!buffer_.starts_with("\r\n")) refuse_form("something follows a boundary");
      buffer_.erase(0, 2);
      state_ = State::kHead;
      return true;
    case State::kHead: {
      const size_t end = found_early("\r\n\r\n", "a part's head is too long");
      if (end == std::string::npos) return false;
      begin_part(std::string_view(buffer_).substr(0, end + 2));
      buffer_.erase(0, end + 2);  // the line break that ends the head may begin the delimiter
      fresh_ = true;
      state_ = State::kBody;
      return true;
    }
    case State::kBody: {
      const size_t at = buffer_.find(delimiter_);
      if (fresh_ && at == 0) {  // nothing in it
        end_part();
        buffer_.erase(0, delimiter_.size());
        state_ = State::kAfterBoundary;
        return true;
      }
      if (fresh_ && buffer_.size() < delimiter_.size()) return false;
      if (fresh_) {
        buffer_.erase(0, 2);
        fresh_ = false;
        return true;
      }
      if (at != std::string::npos) {
        take(std::string_view(buffer_).substr(0, at));
        end_part();
        buffer_.erase(0, at + delimiter_.size());
        state_ = State::kAfterBoundary;
        return true;
      }
      // The end may be the beginning of a delimiter.
      if (buffer_.size() > delimiter_.size()) {
        const size_t sure = buffer_.size() - delimiter_.size();
        take(std::string_view(buffer_).substr(0, sure));
        buffer_.erase(0, sure);
      }
      return false;
    }
    case State::kEnd:
      buffer_.clear();
      return false;
  }
  return false;
}

void MultipartParser::begin_part(std::string_view head) {
  if (parts_.size() >= limits_.parts) fail(Code::kMemory, "http", "the form has too many parts");
  part_ = {};
  bool named = false;
  while (!head.empty()) {
    const size_t end = head.find("\r\n");
    const std::string_view line = head.substr(0, end);
    head = end == std::string_view::npos ? std::string_view() : head.substr(end + 2);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) refuse_form("a part's head has a line without a name");
    if (in_small_letters(line.substr(0, colon)) != "content-disposition") continue;
    std::string file_name;
    named = quoted_parameter(line, "name", part_.name);
    part_.is_file = quoted_parameter(line, "filename", file_name) || quoted_parameter(line, "filename*", file_name);
  }
  if (!named || part_.name.empty() || part_.name.size() > 100) refuse_form("a part has no name");
  if (!part_.is_file) return;
  if (++files_ > limits_.files)
    fail(Code::kMemory, "http", "the form has too many files; expected at most 16 pictures");
  std::error_code error;
  fs::create_directories(spool_, error);
  ::chmod(spool_.c_str(), 0700);
  std::random_device device;
  part_.file = spool_ / fmt::format("{:08x}{:08x}{:08x}", device(), device(), device());
  file_ = ::open(part_.file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file_ < 0) {
    const int reason = errno;
    part_.file.clear();
    fail(Code::kIo, "http", std::string("cannot spool a picture: ") + std::strerror(reason));
  }
}

void MultipartParser::take(std::string_view bytes) {
  if (!part_.is_file) {
    if (part_.text.size() + bytes.size() > limits_.field_bytes)
      fail(Code::kMemory, "http", "the field '" + part_.name + "' is too long");
    part_.text += bytes;
    return;
  }
  part_.file_bytes += bytes.size();
  if (part_.file_bytes > limits_.file_bytes)
    fail(Code::kMemory, "http", "the picture '" + part_.name + "' is too large; expected at most 50 MB");
  if (!write_fully(file_, bytes))
    fail(Code::kIo, "http", std::string("cannot spool a picture: ") + std::strerror(errno));
}

void MultipartParser::end_part() {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
  parts_.push_back(std::move(part_));
  part_ = {};
}

std::vector<FormPart> MultipartParser::finish() {
  if (state_ != State::kEnd) refuse_form("its end is missing");
  taken_ = true;
  return std::move(parts_);
}

std::vector<FormPart> MultipartParser::read(const std::string& boundary, const fs::path& spool, std::string_view body) {
  MultipartParser parser(boundary, spool);
  parser.feed(body);
  return parser.finish();
}

}  // namespace lockstep
