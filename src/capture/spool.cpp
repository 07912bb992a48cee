#include "capture/spool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/folder.h"
#include "base/platform/memory_maps.h"
#include "capture/file_names.h"

namespace lockstep {
namespace {

constexpr uint64_t kMagic = 0x31746F6C536B634Cull;  // "LckSlot1"
constexpr uint64_t kFree = 0, kCommitted = 1;
constexpr size_t kHeaderBytes = 64, kAlignment = 64, kSmallestSlot = 16 << 10;
constexpr size_t kMostSlots = 4096;  // a bound on files, and on what recovery looks at

size_t rounded(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

size_t data_offset(size_t text_room) {
  return (kHeaderBytes + text_room + kPageBytes - 1) / kPageBytes * kPageBytes + kPageBytes;
}

// Few sizes, so that slots fit again: powers of two and their halves in between.
size_t slot_size(size_t bytes) {
  size_t size = kSmallestSlot;
  while (size < bytes) size *= 2;
  return size > kSmallestSlot && size / 4 * 3 >= bytes ? size / 4 * 3 : size;
}

// Empty where files are never memory.
fs::path shared_memory_folder(std::string_view id) {
  const fs::path folder = memory_folder();
  return folder.empty() ? folder : folder / ("lockstep-" + std::to_string(::getuid()) + "-" + escape_name(id));
}

bool is_own_folder(const fs::path& folder) {
  struct stat info {};
  return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::getuid();
}

constexpr const char* kRunFile = "run";  // in a spool folder: which run it belongs to

// Spools of killed programs whose runs were deleted since: nobody will ever ask for them, and they are memory.
void remove_orphans() {
  std::error_code error;
  const std::string prefix = "lockstep-" + std::to_string(::getuid()) + "-";
  for (fs::directory_iterator it(memory_folder(), error), end; !error && it != end; it.increment(error)) {
    if (!it->path().filename().string().starts_with(prefix) || !is_own_folder(it->path())) continue;
    try {
      std::error_code ignored;
      const fs::path run = read_text(it->path() / kRunFile, 1 << 16);
      const fs::path archived = run.parent_path().parent_path() / "archive" / run.filename();
      if (!run.empty() && !fs::exists(run, ignored) && !fs::exists(archived, ignored))
        fs::remove_all(it->path(), ignored);
    } catch (const Error&) {
      continue;  // one that is just being made
    }
  }
}

}  // namespace

Slot::Slot(const fs::path& path, size_t bytes) : path_(path), bytes_(bytes) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) fail(Code::kIo, "spool", path.string() + ": " + std::strerror(errno));
  // All of it now: touching a page that a full disk cannot back would end the program with SIGBUS.
  const int error = reserve_bytes(fd, bytes);
  void* map = error ? nullptr : map_shared(fd, bytes);
  const int reason = error ? error : errno;
  ::close(fd);
  if (!map) {
    ::unlink(path.c_str());
    fail(Code::kIo, "spool", path.string() + ": " + std::strerror(reason));
  }
  map_ = static_cast<std::byte*>(map);
  header()->magic = kMagic;
}

Slot::~Slot() {
  if (map_) ::munmap(map_, bytes_);
}

size_t Slot::bytes_for(size_t text_room, size_t data_bytes) {
  if (data_bytes == 0) return kHeaderBytes + rounded(text_room);
  return data_offset(text_room) + (data_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

std::byte* Slot::values_after(size_t text_room) const {
  return map_ + data_offset(text_room);
}

void Slot::commit(int64_t seq, std::string_view text, size_t text_room, size_t data_bytes) {
  if (text.size() > text_room || bytes_for(text_room, data_bytes) > bytes_)
    fail(Code::kInternal, "spool", "a record does not fit the slot that was taken for it");
  std::memcpy(map_ + kHeaderBytes, text.data(), text.size());
  header()->seq = seq;
  header()->text_bytes = text.size();
  header()->data_at = data_bytes == 0 ? kHeaderBytes + rounded(text_room) : data_offset(text_room);
  header()->data_bytes = data_bytes;
  header()->state.store(kCommitted, std::memory_order_release);
}

void Slot::clear() {
  header()->state.store(kFree, std::memory_order_release);
}

std::string_view Slot::text() const {
  return {reinterpret_cast<const char*>(map_) + kHeaderBytes, header()->text_bytes};
}

std::span<std::byte> Slot::data() const {
  return {map_ + header()->data_at, header()->data_bytes};
}

Spool::Spool(const fs::path& run, std::string_view id, uint64_t max_bytes) : max_bytes_(max_bytes) {
  folder_ = shared_memory_folder(id);
  if (!folder_.empty() && ::mkdir(folder_.c_str(), 0700) == 0) {
    try {
      write_atomically(folder_ / kRunFile, fs::absolute(run).string());
      remove_orphans();
    } catch (const std::exception&) {
      // Only tidiness is lost.
    }
    return;
  }
  folder_ = run / "spool";
  usable_ = ::mkdir(folder_.c_str(), 0700) == 0;
}

void Spool::remove() noexcept {
  if (!usable_ || forgotten_) return;
  usable_ = false;
  slots_.clear();
  free_.clear();
  try {
    std::error_code error;
    fs::remove_all(folder_, error);
  } catch (const std::exception&) {  // no memory: the files stay, which only takes room
  }
}

void Spool::forget() noexcept {
  forgotten_ = true;
}

// Gives free slots back to the system until `at_least` more bytes fit under the bound.
bool Spool::drop_free(size_t at_least) {
  while (in_files_ + at_least > max_bytes_ && !free_.empty()) {
    Slot* victim = free_.front();
    free_.erase(free_.begin());
    const auto at = std::find_if(slots_.begin(), slots_.end(), [&](const auto& slot) { return slot.get() == victim; });
    in_files_ -= victim->bytes();
    std::error_code error;
    fs::remove(victim->path(), error);
    slots_.erase(at);
  }
  return in_files_ + at_least <= max_bytes_;
}

Slot* Spool::make(size_t bytes) {
  try {
    slots_.push_back(std::make_unique<Slot>(folder_ / ("slot" + std::to_string(next_)), bytes));
  } catch (const Error&) {
    return nullptr;
  }
  ++next_;
  in_files_ += bytes;
  peak_bytes_ = std::max(peak_bytes_.load(), in_files_);
  return slots_.back().get();
}

Slot* Spool::take(size_t bytes) {
  const size_t size = slot_size(bytes);
  if (!usable_ || size > max_bytes_) return nullptr;
  std::unique_lock lock(mutex_);
  while (true) {
    // The smallest free slot that fits, unless it wastes more than it holds. The last that was given back comes first:
    // mostly it is as large as the next record, and thousands may be free.
    auto best = free_.end();
    for (auto it = free_.end(); it != free_.begin();) {
      --it;
      if ((*it)->bytes() >= size && (*it)->bytes() <= 2 * size &&
          (best == free_.end() || (*it)->bytes() < (*best)->bytes()))
        best = it;
      if (best != free_.end() && (*best)->bytes() == size) break;
    }
    if (best != free_.end()) {
      Slot* slot = *best;
      free_.erase(best);
      return slot;
    }
    if (slots_.size() < kMostSlots && drop_free(size)) {
      if (Slot* slot = make(size)) return slot;
      if (slots_.empty()) return nullptr;  // the system has no room at all
      if (!free_.empty()) {                // give all idle slots back and try once more
        const uint64_t bound = max_bytes_;
        max_bytes_ = 0;
        drop_free(0);
        max_bytes_ = bound;
        if (Slot* slot = make(size)) return slot;
      }
      if (slots_.empty()) return nullptr;
    }
    freed_->wait(lock);
  }
}

bool Spool::is_crowded() {
  const std::lock_guard lock(mutex_);
  uint64_t idle = 0;
  for (const Slot* slot : free_) idle += slot->bytes();
  return 2 * (in_files_ - idle) > max_bytes_;
}

void Spool::give(Slot* slot) {
  slot->clear();
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(slot);
  }
  freed_->notify_all();
}

bool has_spool(const fs::path& run, std::string_view id) {
  return is_own_folder(shared_memory_folder(id)) || is_own_folder(run / "spool");
}

void recover_spool(const fs::path& run, std::string_view id, const std::function<void(const SpooledRecord&)>& each) {
  for (const fs::path& folder : {shared_memory_folder(id), run / "spool"}) {
    if (!is_own_folder(folder)) continue;
    std::vector<std::shared_ptr<const MappedFile>> files;  // maps, not copies: they stay until all is written
    std::vector<SpooledRecord> records;
    std::error_code error;
    for (const fs::directory_entry& entry : folder_entries(folder, "recover")) {
      if (files.size() == kMostSlots) break;
      if (entry.is_symlink()) continue;
      std::shared_ptr<const MappedFile> file;
      try {
        file = MappedFile::open(entry.path());
      } catch (const Error& refused) {
        if (system_refused(refused)) throw;  // all of it is there for whoever tries next
        continue;
      }
      const std::span<const std::byte> bytes = file->bytes();
      if (bytes.size() < kHeaderBytes) continue;
      uint64_t words[6];
      std::memcpy(words, bytes.data(), sizeof words);
      const auto [magic, state, seq, text_bytes, data_at, data_bytes] = words;
      if (magic != kMagic || state != kCommitted || text_bytes > bytes.size() - kHeaderBytes) continue;
      if (data_at % kAlignment || data_at > bytes.size() || data_bytes > bytes.size() - data_at) continue;
      files.push_back(file);
      records.push_back({static_cast<int64_t>(seq),
                         std::string(reinterpret_cast<const char*>(bytes.data()) + kHeaderBytes, text_bytes),
                         bytes.subspan(data_at, data_bytes)});
    }
    std::sort(records.begin(), records.end(),
              [](const SpooledRecord& a, const SpooledRecord& b) { return a.seq < b.seq; });
    for (const SpooledRecord& record : records) each(record);
    fs::remove_all(folder, error);
  }
}

}  // namespace lockstep
