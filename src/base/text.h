// Text that may be printed as it stands. It is made of literals in this program's own source and of values; a string
// that is put into it came from somewhere (a file, a program, an argument), and is escaped on the way. There is no
// other way to print: a tensor's name can neither steer a terminal nor pass for a line of ours.
#pragma once
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/escape.h"

namespace lockstep {

class Text;

namespace text_detail {

template <typename Value>
inline constexpr bool is_string = std::is_convertible_v<const Value&, std::string_view>;

// What a value is formatted as. No answer: it cannot be put into a Text before somebody has thought about it.
template <typename Value, typename = void>
struct ShownAs;
template <typename Value>
struct ShownAs<Value, std::enable_if_t<std::is_arithmetic_v<Value>>> {
  using type = Value;
};
template <typename Value>
struct ShownAs<Value, std::enable_if_t<is_string<Value>>> {
  using type = std::string;
};
template <>
struct ShownAs<std::filesystem::path> {
  using type = std::string;
};
template <>
struct ShownAs<Text> {
  using type = std::string;
};

template <typename Value>
using Shown = typename ShownAs<std::remove_cv_t<Value>>::type;

}  // namespace text_detail

class Text {
 public:
  Text() = default;

  // Words of our own: a constant array of characters is a literal, and one that can be written to is refused.
  template <size_t N>
  Text(const char (&literal)[N]) : text_(literal) {}  // NOLINT: a literal is a Text
  template <size_t N>
  Text(char (&)[N]) = delete;
  // A string from outside, escaped.
  Text(const std::string& outside) : text_(escaped(outside)) {}  // NOLINT: the safe way is the short one
  // One that was just put together may hold words and line breaks of ours, which must not be escaped: Text::of.
  Text(std::string&&) = delete;

  // {} as in fmt::format. Strings are escaped, a Text is not.
  template <typename... Values>
  static Text of(fmt::format_string<text_detail::Shown<Values>...> format, const Values&... values) {
    return rendered(format, shown(values)...);
  }
  // A string from outside, escaped.
  static Text from(std::string_view outside) { return trusted(escaped(outside)); }
  // One of several lines: the second and later ones begin with `indent`, so that none passes for a line of ours.
  static Text from_lines(std::string_view outside, std::string_view indent = "  ");
  // What is known to be safe: JSON, Base64, a terminal's own codes. Rare, and to be looked at in a review.
  static Text trusted(std::string text) {
    Text made;
    made.text_ = std::move(text);
    return made;
  }

  const std::string& string() const { return text_; }
  bool empty() const { return text_.empty(); }
  Text& operator+=(const Text& more) {
    text_ += more.text_;
    return *this;
  }
  friend Text operator+(Text a, const Text& b) {
    a += b;
    return a;
  }
  bool operator==(const Text&) const = default;

 private:
  template <typename Value>
  static text_detail::Shown<Value> shown(const Value& value) {
    if constexpr (std::is_same_v<Value, Text>)
      return value.text_;
    else if constexpr (std::is_same_v<Value, std::filesystem::path>)
      return escaped(value.string());
    else if constexpr (text_detail::is_string<Value>)
      return escaped(std::string_view(value));
    else
      return value;
  }
  template <typename... Values>
  static Text rendered(fmt::string_view format, const Values&... values) {
    return trusted(fmt::vformat(format, fmt::make_format_args(values...)));
  }

  std::string text_;
};

template <typename Range>
Text joined(const Range& parts, const Text& separator) {
  Text out;
  for (const auto& part : parts) {
    if (!out.empty()) out += separator;
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(part)>, Text>)
      out += part;
    else
      out += Text::from(part);
  }
  return out;
}

// The only ways to stdout and stderr. Error{kIo} where stdout cannot be written; stderr is best effort, because there
// is nowhere left to say so.
void print(const Text& text);
void print_error(const Text& text);

template <typename... Values>
void print(fmt::format_string<text_detail::Shown<Values>...> format,
           const Values&... values) requires(sizeof...(Values) > 0) {
  print(Text::of(format, values...));
}
template <typename... Values>
void print_error(fmt::format_string<text_detail::Shown<Values>...> format,
                 const Values&... values) requires(sizeof...(Values) > 0) {
  print_error(Text::of(format, values...));
}
void flush_output();  // Error{kIo} where what was printed did not get out

}  // namespace lockstep
