#include "capture/run_writer.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstdio>

#include "base/error.h"
#include "base/names.h"
#include "base/text.h"
#include "capture/file_size_signal.h"
#include "capture/run_manifest.h"
#include "capture/value_pass.h"
#include "tensor/storage.h"
#include "tensor/value_digest.h"

namespace lockstep {
namespace {

// A tensor this small costs less to write at once than to hand to another thread.
constexpr size_t kInlineBytes = 32 << 10;

// What a line may still grow by once its slot is taken: the sequence numbers and the checksum.
constexpr size_t kLateText = 128;

// From this size on a direct write costs less than a copy into the page cache.
constexpr size_t kDirectBytes = 1 << 20;

constexpr size_t kMostSeen = 1 << 20;  // values that are remembered to be known again

std::atomic<uint64_t> fork_count{0};

void watch_forks() {
  static const int once = pthread_atfork(nullptr, nullptr, [] { ++fork_count; });
  static_cast<void>(once);
}

}  // namespace

std::unique_ptr<RunWriter> RunWriter::create(const RunOptions& options) {
  const HoldFileSizeSignal hold;
  const Store store(options.home);
  Store::NewRun run = store.create();
  std::unique_ptr<RunWriter> writer(new RunWriter(run.path, run.id, options));
  // Before run.json makes it visible: a run that nobody holds counts as killed, and would be archived.
  if (!writer->lock_.acquire(run.path)) fail(Code::kIo, "record", "cannot lock " + run.path.string());
  writer->folder_.write_manifest(new_manifest(options.name, run.id, options.details));
  writer->begin();
  run.keep();
  try {
    store.point_latest(options.name, run.path);
    if (options.keep_runs > 0) store.archive_older(options.name, options.keep_runs);
  } catch (const Error& error) {
    writer->warn_once("archive", error.what());
  }
  return writer;
}

std::unique_ptr<RunWriter> RunWriter::attach(const fs::path& run, const RunOptions& options) {
  const HoldFileSizeSignal hold;
  const std::string id = run_id(RunFolder(run).manifest(), run);
  std::unique_ptr<RunWriter> writer(new RunWriter(fs::absolute(run), id, options));
  if (!writer->lock_.acquire(run)) return nullptr;
  // Another process has been here (and its hits would be counted twice).
  std::error_code error;
  if (fs::exists(run / "records.jsonl", error) && fs::file_size(run / "records.jsonl", error) > 0) return nullptr;
  writer->begin();
  writer->update(options.details);
  return writer;
}

RunWriter::RunWriter(const fs::path& run, std::string id, const RunOptions& options)
    : options_(options), id_(std::move(id)), folder_(run), spool_(run, id_, options.buffer_bytes) {
  watch_forks();
  fork_generation_ = fork_count;
}

void RunWriter::begin() {
  folder_.open_log();
  const Store store(options_.home);
  limits_ = store.limits();
  store_bytes_ = store.size_bytes();
  begun_ = true;
}

RunWriter::~RunWriter() {
  close("failed");
  if (!forked()) return;
  static_cast<void>(wake_.release());
  static_cast<void>(done_.release());
  spool_.abandon();
}

bool RunWriter::forked() const {
  return fork_generation_ != fork_count.load(std::memory_order_relaxed);
}

void RunWriter::warn_once(const std::string& topic, const std::string& message) noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (!warned_.insert(topic).second) return;
    }
    if (options_.warn)
      options_.warn(message);
    else
      print_error("lockstep: {}\n", message);
  } catch (...) {
    // Even a warning must not stop the host.
  }
}

bool RunWriter::keep_in_full(const Record& record, uint64_t bytes) {
  bool named = false;
  for (const std::string& glob : options_.full) named = named || glob_match(glob, record.key.name);
  if (!options_.full.empty() && !named) return false;
  if (options_.full.empty() && options_.stats_only) return false;
  std::string topic, message;
  bool keep = true;
  {
    const std::lock_guard lock(mutex_);
    if (tensors_broken_) return false;
    const uint64_t total = store_bytes_ + counts_.tensor_bytes + bytes;
    if (!named && counts_.tensor_bytes + bytes > options_.budget_bytes) {
      keep = false;
      topic = "budget";
      message = fmt::format(
          "the budget of {} for full tensors is used; statistics go on (--budget raises it, --full GLOB "
          "chooses what to keep)",
          text_from_bytes(options_.budget_bytes));
    } else if (total > limits_.refuse_bytes) {
      keep = false;
      topic = "refuse";
      message = fmt::format(
          "the store {} has reached its limit of {}: no more full tensors, statistics go on; try "
          "'lockstep runs remove' or 'lockstep runs limits'",
          options_.home.string(), text_from_bytes(limits_.refuse_bytes));
    } else if (total > limits_.warn_bytes) {
      topic = "warn";
      message =
          fmt::format("the store {} holds more than {}; recording stops keeping tensors at {}", options_.home.string(),
                      text_from_bytes(limits_.warn_bytes), text_from_bytes(limits_.refuse_bytes));
    }
    if (keep) {
      counts_.tensor_bytes += bytes;
      ++counts_.tensors;
    } else {
      ++counts_.skipped_tensors;
    }
  }
  if (!topic.empty()) warn_once(topic, message);
  return keep;
}

void RunWriter::record(Record record, const Tensor& offered) noexcept {
  try {
    if (forked() || closed_ || log_broken_) return;
    const HoldFileSizeSignal hold;
    record.dtype = offered.dtype();
    record.dtype_text = dtype_name(offered.dtype());
    record.shape = offered.shape();
    record.secs = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const bool full = keep_in_full(record, offered.bytes());
    if (!full && !offered.on_host() && has_thread())
      if (std::shared_ptr<PendingDigest> digest = offered.storage()->digest(offered)) {
        record_digest(record, std::move(digest));
        return;
      }
    const Tensor tensor = offered.host();
    record.preview = preview_values(tensor);
    if (!full || tensor.bytes() <= kInlineBytes || !has_thread()) {
      record_inline(record, tensor, full);
      return;
    }
    record.file = "pending";  // the thread names it
    const size_t text_room = line_from_record(record).size() + kLateText;
    Slot* slot = spool_.take(Slot::bytes_for(text_room, tensor.bytes()));
    if (!slot) {
      record_inline(record, tensor, full);
      return;
    }
    try {
      record.checksum =
          pass_over_values(tensor, {.statistics = false, .copy_to = slot->values_after(text_room)}).checksum;
      enqueue(std::move(record), slot, text_room, tensor.bytes());
    } catch (...) {
      spool_.give(slot);
      throw;
    }
  } catch (const std::exception& error) {
    warn_once("record", std::string("a tensor could not be recorded: ") + error.what());
    const std::lock_guard lock(mutex_);
    ++counts_.lost;
  }
}

// Statistics of values that a device holds: the thread waits for them in its turn.
void RunWriter::record_digest(Record& record, std::shared_ptr<PendingDigest> digest) {
  const size_t text_room = most_line_bytes(record) + kLateText;
  if (Slot* slot = spool_.take(Slot::bytes_for(text_room, 0))) {
    enqueue(std::move(record), slot, text_room, 0, {}, std::move(digest));
    return;
  }
  complete_from_digest(record, digest->wait());
  flush();
  const std::lock_guard lock(mutex_);
  record.seq = next_seq_++;
  write_line(record);
}

// The file of a small tensor: that of an earlier record with the same values, else a new one, which is remembered.
std::string RunWriter::written_values(Record& record, const Tensor& packed, std::shared_ptr<Seen>& remembers) {
  const std::string values = record.checksum + record.dtype_text + to_string(record.shape);
  std::string first;
  {
    const std::lock_guard lock(mutex_);
    const auto found = seen_.find(values);
    if (found != seen_.end() && found->second->on_disk) {
      record.same_as = found->second->record.seq;
      counts_.tensor_bytes -= packed.bytes();
      first = found->second->record.file;
    }
  }
  if (!first.empty()) return folder_.link_tensor(record, first);
  const std::string file = folder_.write_tensor(record, packed.contiguous_bytes());
  const std::lock_guard lock(mutex_);
  if (seen_.size() < kMostSeen && !seen_.contains(values)) {
    remembers = std::make_shared<Seen>();
    remembers->record.file = file;
    seen_.emplace(values, remembers);
  }
  return file;
}

// Without the thread: statistics alone, small tensors, and those for which no slot is large enough.
void RunWriter::record_inline(Record& record, const Tensor& tensor, bool full) {
  record.file.clear();
  std::shared_ptr<Seen> remembers;
  if (!full) {
    const PassResult result = pass_over_values(tensor, {});
    record.stats = result.stats;
    record.checksum = result.checksum;
  } else {
    const Tensor packed = tensor.clone();
    const PassResult result = pass_over_values(packed, {});
    record.stats = result.stats;
    record.checksum = result.checksum;
    try {
      record.file = written_values(record, packed, remembers);
    } catch (const Error& error) {
      tensors_broken_ = true;
      {
        const std::lock_guard lock(mutex_);
        --counts_.tensors, ++counts_.skipped_tensors;
        counts_.tensor_bytes -= packed.bytes();
      }
      warn_once(kDiskTopic, std::string(error.what()) + "; no more full tensors, statistics go on where they fit");
    }
  }
  if (record_statistics_now(record, remembers)) return;
  // Older records are still on their way, and lines are written in order.
  const size_t text_room = line_from_record(record).size() + kLateText;
  Slot* slot = spool_.take(Slot::bytes_for(text_room, 0));
  if (slot) {
    enqueue(std::move(record), slot, text_room, 0, std::move(remembers));
    return;
  }
  flush();
  const std::lock_guard lock(mutex_);
  record.seq = next_seq_++;
  if (remembers) remembers->record.seq = record.seq, remembers->on_disk = true;
  write_line(record);
}

bool RunWriter::record_statistics_now(Record& record, const std::shared_ptr<Seen>& remembers) {
  const std::lock_guard lock(mutex_);
  if (in_flight_ > 0) return false;
  record.seq = next_seq_++;
  if (remembers) remembers->record.seq = record.seq, remembers->on_disk = true;
  write_line(record);
  return true;
}

// Starts it with the first tensor that it is for. Where the system starts no more threads, tensors are written by the
// program's own: slower, and nothing is lost.
bool RunWriter::has_thread() {
  const std::lock_guard lock(mutex_);
  if (thread_ || threadless_) return thread_ != nullptr;
  // The thread inherits a full signal mask: a write beyond RLIMIT_FSIZE then fails with EFBIG instead of ending the
  // program with SIGXFSZ, and no handler of the host runs here.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::make_unique<std::thread>([this] { run_thread(); });
  } catch (const std::exception&) {
    threadless_ = true;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread_ != nullptr;
}

void RunWriter::enqueue(Record record, Slot* slot, size_t text_room, size_t data_bytes,
                        std::shared_ptr<Seen> inline_seen, std::shared_ptr<PendingDigest> digest) {
  std::shared_ptr<Seen> first, remembers;
  const std::lock_guard lock(mutex_);
  record.seq = next_seq_;
  if (inline_seen) inline_seen->record.seq = record.seq, inline_seen->on_disk = true;
  std::string values;
  try {
    if (data_bytes > 0) {
      values = record.checksum + record.dtype_text + to_string(record.shape);
      if (const auto found = seen_.find(values); found != seen_.end()) {
        first = found->second;
        record.same_as = first->record.seq;
        counts_.tensor_bytes -= data_bytes;
        data_bytes = 0;
      } else if (seen_.size() < kMostSeen) {
        remembers = std::make_shared<Seen>();
        remembers->record.seq = record.seq;
        seen_.emplace(values, remembers);
      }
    }
    const std::string line = line_from_record(record);
    queue_.push_back({std::move(record), slot, std::move(first), remembers, std::move(digest)});
    slot->commit(next_seq_, line, text_room, data_bytes);
  } catch (...) {  // out of memory: nothing may refer to a record that does not exist
    if (remembers) seen_.erase(values);
    throw;
  }
  ++next_seq_;
  ++in_flight_;
  wake_->notify_one();
}

void RunWriter::finish(Pending& pending) {
  if (pending.digest) {
    try {
      complete_from_digest(pending.record, pending.digest->wait());
    } catch (const std::exception& error) {
      warn_once("digest", pending.record.key.name + " is recorded without statistics: " + error.what());
    }
    return;
  }
  const std::span<std::byte> packed = pending.slot->data();
  try {
    if (pending.first) {
      finish_repeated_record(folder_, pending.record, pending.first->record);
      return;
    }
    // Past the page cache while the disk keeps up: the host's cores have better to do than to copy once more.
    const bool direct = packed.size() >= kDirectBytes && !spool_.is_crowded();
    if (!finish_record(folder_, pending.record, packed, direct ? std::optional(packed) : std::nullopt))
      warn_once("checksum",
                pending.record.key.name + ": the values changed between capture and disk; this record is bad");
  } catch (const std::exception& error) {
    tensors_broken_ = true;
    pending.record.file.clear();
    {
      const std::lock_guard lock(mutex_);
      --counts_.tensors, ++counts_.skipped_tensors;
      counts_.tensor_bytes -= packed.size();
    }
    warn_once(kDiskTopic, std::string(error.what()) + "; no more full tensors, statistics go on where they fit");
  }
}

void RunWriter::run_thread() {
  while (true) {
    Pending pending;
    {
      std::unique_lock lock(mutex_);
      wake_->wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      pending = std::move(queue_.front());
      queue_.pop_front();
    }
    finish(pending);
    std::string failure;
    const bool written = append_line(pending.record, failure);
    {
      const std::lock_guard lock(mutex_);
      count_line(written, failure);
      --in_flight_;
    }
    if (pending.remembers) {  // moved, which takes no memory: later records of these values are linked to this file
      pending.remembers->record.stats = pending.record.stats;
      pending.remembers->record.file = std::move(pending.record.file);
    }
    spool_.give(pending.slot);
    done_->notify_all();
  }
}

void RunWriter::flush() noexcept {
  if (forked()) return;
  std::unique_lock lock(mutex_);
  done_->wait(lock, [this] { return in_flight_ == 0; });
}

void RunWriter::update(const Json& patch) noexcept {
  if (forked() || closed_) return;
  try {
    const HoldFileSizeSignal hold;
    const std::lock_guard lock(mutex_);
    Json manifest = folder_.manifest();
    merge_into(manifest, patch);
    folder_.write_manifest(manifest);
  } catch (const std::exception& error) {
    warn_once(kDiskTopic, error.what());
  }
}

void RunWriter::close(std::string_view status, std::optional<int> exit_code) noexcept {
  if (closed_) return;
  if (!begun_) {  // the run is another process's, or could not be made: what its run.json says is not ours to say
    spool_.remove();
    closed_ = true;
    return;
  }
  if (forked()) {  // everything belongs to the parent, and the thread exists only there
    static_cast<void>(thread_.release());
    spool_.forget();
    lock_.forget();
    closed_ = true;
    return;
  }
  flush();
  if (thread_) {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_->notify_one();
    thread_->join();
  }
  try {
    const WriterCounts totals = counts();
    Json patch{{"status", status},
               {"finished", utc_now()},
               {"recorded",
                {{"records", totals.records},
                 {"tensors", totals.tensors},
                 {"tensor_bytes", totals.tensor_bytes},
                 {"skipped_tensors", totals.skipped_tensors},
                 {"lost", totals.lost},
                 {"budget_bytes", options_.budget_bytes}}}};
    if (exit_code) patch["program"]["exit_code"] = *exit_code;
    update(patch);
  } catch (const std::exception&) {  // no memory to say how it ended: whoever reads the run sees that nobody holds it
  }
  closed_ = true;
  spool_.remove();
  folder_.close_log();
  lock_.release();
}

WriterCounts RunWriter::counts() const {
  const std::lock_guard lock(mutex_);
  WriterCounts totals = counts_;
  totals.peak_buffer_bytes = spool_.peak_bytes();
  return totals;
}

}  // namespace lockstep
