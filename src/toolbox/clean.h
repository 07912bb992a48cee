// What a home folder holds, what of it may go, and its removal.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace lockstep {

enum class StoredKind { kRun, kArchive, kSession, kSaved, kLeftover };
std::string_view kind_name(StoredKind kind);  // "runs", "archive", "sessions", "saved", "leftovers"
std::vector<std::string> kind_names();

struct StoredItem {
  StoredKind kind = StoredKind::kRun;
  std::string id, name;
  fs::path path;
  double age_secs = 0;  // since it was last written
  uint64_t bytes = 0;
  std::string in_use{};  // why it must stay; empty: nobody needs it
};

struct CleanRequest {
  std::vector<std::string> kinds;  // empty: all but what programs saved by name
  std::optional<double> older_than_secs;
  size_t keep_last = 0;  // the newest so many of each name stay
};

struct CleanPlan {
  std::vector<StoredItem> remove, in_use;
  uint64_t bytes = 0;  // of what is removed
};

CleanPlan plan_clean(const fs::path& home, const CleanRequest& request);
// Whatever has come into use since the plan stays. Each item leaves its place in one step, so that a run is whole or
// gone, even if we are killed on the way. Returns what was removed.
std::vector<StoredItem> remove_items(const fs::path& home, const std::vector<StoredItem>& items);

double age_from_text(std::string_view text);  // "90s", "30m", "12h", "7d", "4w" in seconds. Error{kUsage}
std::string text_from_age(double secs);       // "3 days"

Json json_from(const StoredItem& item);

}  // namespace lockstep
