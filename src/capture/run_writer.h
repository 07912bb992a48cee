// Records tensors into a run folder while the program runs on. Values are copied before record() returns; what follows
// (statistics, files) is done by one thread, in order, within a bound on memory. Nothing here ever stops its host: what
// cannot be recorded is said once, and the program goes on.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "capture/run_folder.h"
#include "capture/run_lock.h"
#include "capture/spool.h"
#include "capture/store.h"

namespace lockstep {

class PendingDigest;

struct RunOptions {
  fs::path home;
  std::string name = "run";
  Json details = Json::object();          // program, producer, model, settings, versions: merged into run.json
  bool stats_only = false;                // keep no full tensors
  std::vector<std::string> full;          // globs: exactly these are kept in full, whatever the budget says
  uint64_t budget_bytes = 2'000'000'000;  // full tensors until it is used, statistics for all
  uint64_t buffer_bytes = 256 << 20;      // values on their way to disk
  size_t keep_runs = 1;                   // finished runs of this name left outside the archive, this one included
  std::function<void(const std::string&)> warn = {};  // default: one line on stderr
};

struct WriterCounts {
  int64_t records = 0, tensors = 0, skipped_tensors = 0, lost = 0;
  uint64_t tensor_bytes = 0, peak_buffer_bytes = 0;
};

class RunWriter {
 public:
  static std::unique_ptr<RunWriter> create(const RunOptions& options);
  // Goes on with a folder that `lockstep record` has made. Null when another process writes it.
  static std::unique_ptr<RunWriter> attach(const fs::path& run, const RunOptions& options);
  ~RunWriter();  // a run that was not closed is closed as failed
  RunWriter(const RunWriter&) = delete;
  RunWriter& operator=(const RunWriter&) = delete;

  const std::string& id() const { return id_; }
  const fs::path& path() const { return folder_.path(); }

  // `record` brings key (with its hit), role, where and substituted; the rest is filled in here. Any thread may call.
  void record(Record record, const Tensor& tensor) noexcept;
  // Notes in weights.jsonl that a module holds this weight; the values are kept where the model is small.
  void note_weight(const std::string& module, const std::string& name, const Tensor& tensor) noexcept;
  void update(const Json& patch) noexcept;  // merges into run.json
  void flush() noexcept;                    // returns when everything recorded so far is in its place
  void close(std::string_view status = "finished", std::optional<int> exit_code = std::nullopt) noexcept;
  WriterCounts counts() const;
  void warn_once(const std::string& topic, const std::string& message) noexcept;

 private:
  bool keep_weight(Record& record, const Tensor& tensor);
  // Values seen in this run. A module that hands its input through, or whose last child makes its result, is recorded
  // with the values of a record before it; those are kept once. `record` is complete when the thread has written it.
  struct Seen {
    Record record;
    bool on_disk = false;  // its file is there already; looked at and set with mutex_ held
  };
  struct Pending {
    Record record;
    Slot* slot;
    std::shared_ptr<Seen> first;            // these values were seen before
    std::shared_ptr<Seen> remembers;        // to be filled in
    std::shared_ptr<PendingDigest> digest;  // what a device works out: statistics and checksum follow from it
  };

  // Tensors, lines and run.json fail together when a disk is full or a folder is gone: whichever is first says so for
  // all.
  static constexpr const char* kDiskTopic = "disk";

  RunWriter(const fs::path& run, std::string id, const RunOptions& options);
  void begin();
  bool keep_in_full(const Record& record, uint64_t bytes);
  void record_inline(Record& record, const Tensor& tensor, bool full);
  void record_digest(Record& record, std::shared_ptr<PendingDigest> digest);
  std::string written_values(Record& record, const Tensor& packed, std::shared_ptr<Seen>& remembers);
  bool record_statistics_now(Record& record, const std::shared_ptr<Seen>& remembers);
  void enqueue(Record record, Slot* slot, size_t text_room, size_t data_bytes, std::shared_ptr<Seen> inline_seen = {},
               std::shared_ptr<PendingDigest> digest = {});
  void finish(Pending& pending);
  void write_line(const Record& record);
  bool append_line(const Record& record, std::string& failure);
  void count_line(bool written, const std::string& failure);
  bool has_thread();
  void run_thread();
  bool forked() const;

  RunOptions options_;
  std::string id_;
  RunFolder folder_;
  RunLock lock_;
  Spool spool_;
  StoreLimits limits_;
  uint64_t store_bytes_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  uint64_t fork_generation_;

  std::mutex log_mutex_;  // of the log's lines; taken after mutex_ where both are
  mutable std::mutex mutex_;
  // On the heap, because a forked child must not destroy them: destroying waits for waiters, and the child has not got
  // the thread that waits.
  std::unique_ptr<std::condition_variable> wake_ = std::make_unique<std::condition_variable>();
  std::unique_ptr<std::condition_variable> done_ = std::make_unique<std::condition_variable>();
  std::deque<Pending> queue_;
  std::map<std::string, std::shared_ptr<Seen>> seen_;  // checksum, dtype and shape → its first record
  int64_t next_seq_ = 0, weights_ = 0;
  uint64_t weight_bytes_ = 0;  // kept
  int in_flight_ = 0;          // queued or being written
  bool begun_ = false;         // the run is ours and its log is open
  bool stop_ = false;
  bool threadless_ = false;                                                         // the system would not start one
  std::atomic<bool> closed_ = false, log_broken_ = false, tensors_broken_ = false;  // looked at without the lock
  WriterCounts counts_;
  std::set<std::string> warned_;
  std::unique_ptr<std::thread> thread_;
};

}  // namespace lockstep
