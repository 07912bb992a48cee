// The report's page: the same files that serve the page in the browser, joined into one that opens from a disk.
#pragma once
#include <string>
#include <string_view>

namespace lockstep {

struct ReportData {
  std::string summary;      // JSON
  std::string rows, cells;  // packed: gzip
};

std::string page_with(const ReportData& data);

// A module without its imports and with its exports as plain names: joined modules share one scope.
std::string joinable(std::string_view module);

}  // namespace lockstep
