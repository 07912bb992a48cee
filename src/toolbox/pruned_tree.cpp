#include "toolbox/pruned_tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/broken_pipe.h"
#include "base/error.h"
#include "base/new_folder.h"
#include "base/platform/descriptors.h"

namespace lockstep {
namespace {

constexpr uint64_t kMostFileBytes = 1ULL << 30;
constexpr std::string_view kMark = ".pruning-";

[[noreturn]] void refuse(const fs::path& relative, const std::string& why) {
  fail(Code::kBadInput, "prune", "'" + relative.string() + "' cannot be written into the copy: " + why);
}

// How the folders begin that become `destination` when they are whole.
std::string unfinished_prefix(const fs::path& destination) {
  return fmt::format(".{}{}", destination.filename().string(), kMark);
}

// What a killed prune has left beside this destination: folders of its name that no living one holds locked, and the
// lists of files that belong to them, half-written ones too.
void remove_left_behind(const fs::path& destination) {
  const std::string start = unfinished_prefix(destination);
  std::error_code error;
  std::vector<fs::path> found, lists;
  for (const fs::directory_entry& entry : fs::directory_iterator(destination.parent_path(), error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(start)) continue;
    (name.size() == start.size() + kRandomLetters ? found : lists).push_back(entry.path());
  }
  for (const fs::path& path : found) {
    const int folder = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    struct stat info {};
    if (folder < 0) continue;
    if (::fstat(folder, &info) == 0 && info.st_uid == ::geteuid() && ::flock(folder, LOCK_EX | LOCK_NB) == 0) {
      for (const fs::path& list : lists)
        if (list.string().starts_with(path.string() + ".json")) fs::remove(list, error);
      fs::remove_all(path, error);
    }
    ::close(folder);
  }
}

}  // namespace

PrunedTree::PrunedTree(const fs::path& destination) : destination_(fs::absolute(destination).lexically_normal()) {
  if (destination_.filename().empty()) destination_ = destination_.parent_path();
  std::error_code error;
  if (fs::symlink_status(destination_, error).type() != fs::file_type::not_found)
    fail(Code::kBadInput, "prune", destination_.string() + " exists",
         {.expected = "a folder that does not exist yet", .hint = "another --into"});
  remove_left_behind(destination_);
  struct stat info {};
  do {  // again where another prune took it for left behind before it was locked
    if (root_ >= 0) ::close(root_);
    path_ = make_new_folder(destination_.parent_path(), unfinished_prefix(destination_), "prune");
    root_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (root_ < 0) fail(Code::kIo, "prune", path_.string() + ": " + std::strerror(errno));
    ::flock(root_, LOCK_EX);
  } while (::fstat(root_, &info) != 0 || info.st_nlink == 0);
  ::chmod(path_.c_str(), 0777 & ~0022);
}

PrunedTree::~PrunedTree() {
  if (root_ >= 0) ::close(root_);
  std::error_code ignored;
  if (!kept_) fs::remove_all(path_, ignored);
}

int PrunedTree::folder_of(const fs::path& relative, bool make) const {
  if (relative.is_absolute() || relative.filename().empty()) refuse(relative, "it is no relative path");
  int folder = ::fcntl(root_, F_DUPFD_CLOEXEC, 0);
  for (const fs::path& part : relative.parent_path()) {
    if (part == ".." || part == "." || part.empty()) {
      ::close(folder);
      refuse(relative, "it leaves the folder");
    }
    if (make && ::mkdirat(folder, part.c_str(), 0777) != 0 && errno != EEXIST) {
      const std::string why = std::strerror(errno);
      ::close(folder);
      fail(Code::kIo, "prune", (path_ / relative).string() + ": " + why);
    }
    const int inner = ::openat(folder, part.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    const int why = errno;
    ::close(folder);
    if (inner < 0 && (make || why != ENOENT)) refuse(relative, "a link or a file stands in its way");
    if (inner < 0) return -1;
    folder = inner;
  }
  return folder;
}

bool PrunedTree::has(const fs::path& relative) const {
  const int folder = folder_of(relative, false);
  if (folder < 0) return false;
  const bool there = ::faccessat(folder, relative.filename().c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  ::close(folder);
  return there;
}

void PrunedTree::write(const fs::path& relative, std::string_view text) {
  const std::string name = relative.filename().string();
  if (name == ".." || name == ".") refuse(relative, "it leaves the folder");
  const int folder = folder_of(relative, true);
  const int file = ::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  const int why = errno;
  ::close(folder);
  if (file < 0 && (why == ELOOP || why == EISDIR)) refuse(relative, "a link or a folder stands in its place");
  if (file < 0) fail(Code::kIo, "prune", (path_ / relative).string() + ": " + std::strerror(why));
  const int reason = write_fully(file, text) ? 0 : errno;
  ::close(file);
  if (reason) fail(Code::kIo, "prune", (path_ / relative).string() + ": " + std::strerror(reason));
}

void PrunedTree::remove(const fs::path& relative) {
  const int folder = folder_of(relative, false);
  if (folder < 0) return;
  ::unlinkat(folder, relative.filename().c_str(), 0);
  ::close(folder);
}

void PrunedTree::keep() {
  // What came there meanwhile is somebody else's.
  if (rename_without_replacing(path_.c_str(), destination_.c_str()) != 0)
    fail(Code::kIo, "prune", destination_.string() + " could not be made: " + std::strerror(errno));
  kept_ = true;
}

bool read_inside(const fs::path& root, const fs::path& file, std::string& text) {
  std::error_code error;
  const fs::path real_root = fs::canonical(root, error);
  if (error) return false;
  const fs::path real = fs::canonical(file, error);
  if (error || !fs::is_regular_file(real, error)) return false;
  const auto [end, ignored] = std::mismatch(real_root.begin(), real_root.end(), real.begin(), real.end());
  if (end != real_root.end()) return false;
  try {
    text = read_text(real, kMostFileBytes);
  } catch (const Error&) {
    return false;
  }
  return true;
}

int64_t lines_in(std::string_view text) {
  return std::count(text.begin(), text.end(), '\n') + (!text.empty() && text.back() != '\n');
}

}  // namespace lockstep
