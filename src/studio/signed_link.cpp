#include "studio/signed_link.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <random>

#include "base/error.h"
#include "base/sha256.h"

namespace lockstep {
namespace {

constexpr int64_t kLinkSecs = 3600;

}  // namespace

// Kept on disk, so that a link outlives a restart.
const std::string& SignedLinks::secret() {
  const std::lock_guard lock(mutex_);
  if (!secret_.empty()) return secret_;
  const fs::path file = folder_ / "link_secret";
  std::error_code error;
  fs::create_directories(folder_, error);
  ::chmod(folder_.c_str(), 0700);
  if (fs::exists(file, error)) secret_ = read_text(file, 200);
  if (secret_.size() >= 64) return secret_;
  std::random_device device;
  std::string fresh;
  for (int i = 0; i < 8; ++i) {
    char digits[9];
    std::snprintf(digits, sizeof digits, "%08x", device());
    fresh += digits;
  }
  const mode_t before = ::umask(077);
  try {
    write_atomically(file, fresh);
  } catch (...) {
    ::umask(before);
    throw;
  }
  ::umask(before);
  return secret_ = fresh;
}

std::string SignedLinks::path_of(const std::string& picture_id, double now) {
  const std::string expires = std::to_string(static_cast<int64_t>(now) + kLinkSecs);
  return "/v1/images/" + picture_id + "/content?expires=" + expires +
         "&signature=" + hmac_sha256_hex(secret(), picture_id + "\n" + expires);
}

bool SignedLinks::holds(const std::string& picture_id, const std::string& expires, const std::string& signature,
                        double now) {
  int64_t until = 0;
  const auto [end, error] = std::from_chars(expires.data(), expires.data() + expires.size(), until);
  if (expires.empty() || expires.size() > 12 || error != std::errc() || end != expires.data() + expires.size())
    return false;
  return static_cast<double>(until) >= now &&
         same_secret(signature, hmac_sha256_hex(secret(), picture_id + "\n" + expires));
}

}  // namespace lockstep
