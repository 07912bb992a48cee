#include "io/npy_header.h"

#include <cctype>

#include "base/error.h"

namespace lockstep {
namespace {

// The part of Python's literal grammar that NumPy writes: one flat dictionary of strings, booleans and integer tuples.
class LiteralReader {
 public:
  LiteralReader(std::string_view text, std::string_view origin) : text_(text), origin_(origin) {}

  [[noreturn]] void bad(const std::string& what) const {
    fail(Code::kCorrupt, "npy",
         std::string(origin_) + ": " + what + " at character " + std::to_string(at_) + " of the header",
         {.expected = "a dictionary with 'descr', 'fortran_order' and 'shape'"});
  }

  char peek() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r' || text_[at_] == '\f'))
      ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool take(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }

  void expect(char c) {
    if (!take(c)) bad(std::string("no '") + c + "'");
  }

  bool at_end() {
    peek();
    return at_ == text_.size();
  }

  std::string read_string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') bad("no string");
    const size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != quote) {
      // No dtype needs an escape; a line break inside quotes is an error in Python too.
      if (text_[at_] == '\\' || text_[at_] == '\n' || text_[at_] == '\r') bad("an escape or line break in a string");
      ++at_;
    }
    if (at_ == text_.size()) bad("an unfinished string");
    return std::string(text_.substr(begin, at_++ - begin));
  }

  bool read_bool() {
    peek();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return value;
      }
    bad("no boolean");
  }

  int64_t read_size() {
    const char first = peek();
    if (first == '-') bad("a negative size");
    if (!std::isdigit(static_cast<unsigned char>(first))) bad("no size");
    const size_t begin = at_;
    int64_t value = 0;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) {
      const int64_t digit = text_[at_++] - '0';
      if (value > (INT64_MAX - digit) / 10) bad("a size beyond 64 bits");
      value = value * 10 + digit;
    }
    if (text_[begin] == '0' && value != 0) bad("a size with a leading zero");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 wrote long integers so, and NumPy still reads them
    return value;
  }

  // (), (3,), (3, 4) or (3, 4,): a lone (3) is an integer in Python, and refused as NumPy refuses it.
  Shape read_shape() {
    expect('(');
    Shape shape;
    bool comma = true;
    while (peek() != ')') {
      if (!comma) bad("no ',' in the shape");
      if (shape.size() >= kMaxRank) bad("too many axes");
      shape.push_back(read_size());
      comma = take(',');
    }
    ++at_;
    if (shape.size() == 1 && !comma) bad("a shape that is not a tuple");
    return shape;
  }

 private:
  std::string_view text_, origin_;
  size_t at_ = 0;
};

}  // namespace

NpyHeader parse_npy_header(std::string_view text, std::string_view origin) {
  LiteralReader reader(text, origin);
  NpyHeader header;
  bool descr = false, order = false, shape = false, comma = true;
  reader.expect('{');
  while (reader.peek() != '}') {
    if (!comma) reader.bad("no ',' between entries");
    const std::string key = reader.read_string();
    bool* seen = key == "descr" ? &descr : key == "fortran_order" ? &order : key == "shape" ? &shape : nullptr;
    if (!seen) reader.bad("an unknown key '" + key + "'");
    if (*seen) reader.bad("the key '" + key + "' twice");
    *seen = true;
    reader.expect(':');
    if (seen == &descr) {
      if (reader.peek() == '[')
        fail(Code::kUnsupported, "npy", std::string(origin) + " holds records with fields",
             {.expected = "elements of one plain dtype"});
      header.descr = reader.read_string();
    } else if (seen == &order) {
      header.fortran_order = reader.read_bool();
    } else {
      header.shape = reader.read_shape();
    }
    comma = reader.take(',');
  }
  reader.expect('}');
  if (!reader.at_end()) reader.bad("something after the dictionary");
  if (!descr || !order || !shape) reader.bad("a missing key");
  return header;
}

}  // namespace lockstep
