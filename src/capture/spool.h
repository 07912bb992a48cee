// Memory for records on their way to disk that outlives the process: slots in shared memory (a file in /dev/shm, else
// in the run folder). A record is safe once its slot is committed: the writer thread takes it to its place, and if the
// process is killed first, whoever opens the run next does. Slots are reused, so that a copy costs no fresh pages.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace lockstep {

// At the beginning of every slot file.
struct SlotHeader {
  uint64_t magic;
  std::atomic<uint64_t> state;  // kFree or kCommitted, written last
  int64_t seq;
  uint64_t text_bytes, data_at, data_bytes;  // the record's line follows this header; then, at data_at, its values
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

inline constexpr size_t kPageBytes = 4096;  // what direct writes align to

class Slot {
 public:
  Slot(const fs::path& path, size_t bytes);  // makes the file; throws when the system has no room for all of it
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  size_t bytes() const { return bytes_; }
  const fs::path& path() const { return path_; }
  // Room for values behind a line of at most `text_room` bytes: page aligned, with a free page before them for a file
  // header and none of another slot's bytes in their last page, so that they can go to the disk without a copy.
  std::byte* values_after(size_t text_room) const;
  void commit(int64_t seq, std::string_view text, size_t text_room, size_t data_bytes);
  void clear();
  std::string_view text() const;
  std::span<std::byte> data() const;
  static size_t bytes_for(size_t text_room, size_t data_bytes);

 private:
  SlotHeader* header() const { return reinterpret_cast<SlotHeader*>(map_); }
  fs::path path_;
  std::byte* map_ = nullptr;
  size_t bytes_ = 0;
};

class Spool {
 public:
  // In a forked child: what destroying would wait on is left as it is.
  void abandon() { static_cast<void>(freed_.release()); }

  // `max_bytes` bounds all slots together.
  Spool(const fs::path& run, std::string_view id, uint64_t max_bytes);
  ~Spool() { remove(); }
  void remove() noexcept;  // its files; no slot is usable afterwards

  // Waits while all slots are in use. Null: larger than the bound, or the system has no room; write it without a slot.
  Slot* take(size_t bytes);
  void give(Slot* slot);
  void forget() noexcept;  // in the child of a fork the files are the parent's

  bool is_crowded();  // more than half of the bound waits to be written
  uint64_t peak_bytes() const { return peak_bytes_; }

 private:
  Slot* make(size_t bytes);
  bool drop_free(size_t at_least);

  fs::path folder_;
  uint64_t max_bytes_, in_files_ = 0;
  std::atomic<uint64_t> peak_bytes_ = 0;
  int next_ = 0;
  bool usable_ = true, forgotten_ = false;
  std::mutex mutex_;
  std::unique_ptr<std::condition_variable> freed_ = std::make_unique<std::condition_variable>();
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_;
};

struct SpooledRecord {
  int64_t seq;
  std::string text;
  std::span<const std::byte> data;
};

// What a killed process left behind, in order; then the files are removed. Bounds are checked: the folder is foreign.
void recover_spool(const fs::path& run, std::string_view id, const std::function<void(const SpooledRecord&)>& each);
bool has_spool(const fs::path& run, std::string_view id);

}  // namespace lockstep
