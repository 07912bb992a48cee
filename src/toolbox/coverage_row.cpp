#include "toolbox/coverage_row.h"

#include <algorithm>
#include <charconv>

#include "base/json.h"

namespace lockstep {
namespace {

class RowReader {
 public:
  explicit RowReader(std::string_view text) : rest_(text) {}

  bool mark(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool number(int64_t& value) {
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc{}) return false;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return true;
  }
  bool truth(bool& value) {
    value = rest_.starts_with("true");
    if (!value && !rest_.starts_with("false")) return false;
    rest_.remove_prefix(value ? 4 : 5);
    return true;
  }
  bool text(std::string& value) {
    if (!rest_.starts_with('"')) return false;
    size_t end = 1;
    bool escaped = false;
    for (; end < rest_.size() && rest_[end] != '"'; ++end)
      if (rest_[end] == '\\') escaped = true, ++end;
    if (end >= rest_.size()) return false;
    const std::string_view whole = rest_.substr(0, end + 1);
    rest_.remove_prefix(end + 1);
    if (!escaped) {
      value = whole.substr(1, whole.size() - 2);
      return true;
    }
    const Json parsed = Json::parse(whole, nullptr, false);
    if (parsed.is_string()) value = parsed.get<std::string>();
    return parsed.is_string();
  }
  bool numbers(std::vector<int64_t>& values) {
    if (!mark('[')) return false;
    if (mark(']')) return true;
    do {
      int64_t value = 0;
      if (!number(value)) return false;
      values.push_back(value);
    } while (mark(','));
    return mark(']');
  }

 private:
  std::string_view rest_;
};

bool ascends(const std::vector<int64_t>& values) {
  return std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
}

}  // namespace

std::optional<CoverageRow> coverage_row(std::string_view text) {
  RowReader in(text);
  CoverageRow row;
  const bool whole = in.mark('[') && in.number(row.file) && in.mark(',') && in.text(row.name) && in.mark(',') &&
                     in.number(row.line) && in.mark(',') && in.number(row.calls) && in.mark(',') &&
                     in.truth(row.with_module) && in.mark(',') && in.numbers(row.lines_run);
  if (!whole || row.calls < 0 || (in.mark(',') && !in.numbers(row.lines)) || !in.mark(']')) return std::nullopt;
  return row;
}

void join_lines(std::vector<int64_t>& into, std::vector<int64_t> more) {
  if (!ascends(more)) {
    std::sort(more.begin(), more.end());
    more.erase(std::unique(more.begin(), more.end()), more.end());
  }
  if (into.empty()) {
    into = std::move(more);
    return;
  }
  std::vector<int64_t> all;
  all.reserve(into.size() + more.size());
  std::set_union(into.begin(), into.end(), more.begin(), more.end(), std::back_inserter(all));
  into = std::move(all);
}

}  // namespace lockstep
