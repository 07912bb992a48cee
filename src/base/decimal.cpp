#include "base/decimal.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

#include <locale.h>
#if __has_include(<xlocale.h>)
#include <xlocale.h>
#endif

namespace lockstep {
namespace {

// Digits, signs, exponents, "inf", "nan" and "infinity": what strtod reads beyond that, from_chars does not.
constexpr std::string_view kOfANumber = "0123456789.+-eEinfatyINFATY";

locale_t c_locale() {
  static const locale_t made = ::newlocale(LC_ALL_MASK, "C", locale_t{});
  if (!made) throw std::bad_alloc();
  return made;
}

}  // namespace

std::from_chars_result read_decimal(const char* begin, const char* end, double& value) {
  const std::string text(begin,
                         std::find_if(begin, end, [](char c) { return kOfANumber.find(c) == std::string_view::npos; }));
  if (text.empty() || text.front() == '+') return {begin, std::errc::invalid_argument};
  char* stop = nullptr;
  const double read = ::strtod_l(text.c_str(), &stop, c_locale());
  if (stop == text.c_str()) return {begin, std::errc::invalid_argument};
  const char* const rest = begin + (stop - text.c_str());
  const std::string_view used(text.c_str(), static_cast<size_t>(stop - text.c_str()));
  const bool has_letters = used.find_first_of("iInN") != std::string_view::npos;  // "inf" is no overflow
  const bool is_zero = used.substr(0, used.find_first_of("eE")).find_first_of("123456789") == std::string_view::npos;
  if (!has_letters && (std::isinf(read) || (read == 0 && !is_zero))) return {rest, std::errc::result_out_of_range};
  value = read;
  return {rest, std::errc()};
}

}  // namespace lockstep
