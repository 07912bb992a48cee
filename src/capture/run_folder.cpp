#include "capture/run_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/broken_pipe.h"
#include "base/error.h"
#include "base/platform/descriptors.h"
#include "capture/file_names.h"
#include "capture/run_lock.h"
#include "capture/spool.h"
#include "capture/store.h"
#include "capture/value_pass.h"
#include "io/npy.h"

namespace lockstep {
namespace {

[[noreturn]] void fail_write(const fs::path& path, int error) {
  fail(Code::kIo, "record", path.string() + ": " + std::strerror(error));
}

// Returns errno, 0 when everything was written.
int write_all(int fd, const void* data, size_t bytes) {
  return write_fully(fd, {static_cast<const char*>(data), bytes}) ? 0 : errno;
}

}  // namespace

struct RunFolder::NewTensor {
  int fd;
  std::string name;
};

void RunFolder::open_log() {
  const fs::path file = path_ / "records.jsonl";
  log_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (log_ < 0) fail_write(file, errno);
  struct stat info {};
  if (::fstat(log_, &info) != 0) fail_write(file, errno);
  log_bytes_ = static_cast<uint64_t>(info.st_size);
  if (log_bytes_ == 0) return;
  // The last lines are enough: a line is shorter than kMaxRecordBytes.
  const uint64_t from = log_bytes_ > 2 * kMaxRecordBytes ? log_bytes_ - 2 * kMaxRecordBytes : 0;
  std::string tail(log_bytes_ - from, '\0');
  const ssize_t n = ::pread(log_, tail.data(), tail.size(), static_cast<off_t>(from));
  if (n != static_cast<ssize_t>(tail.size())) fail_write(file, n < 0 ? errno : EIO);
  const size_t last_break = tail.rfind('\n');
  const size_t whole = last_break == std::string::npos ? 0 : last_break + 1;
  if (whole < tail.size()) {
    if (::ftruncate(log_, static_cast<off_t>(from + whole)) != 0) fail_write(file, errno);
    log_bytes_ = from + whole;
  }
  if (whole == 0) return;
  const size_t line_at = whole >= 2 ? tail.rfind('\n', whole - 2) : std::string::npos;
  const size_t begin = line_at == std::string::npos ? 0 : line_at + 1;
  if (const auto record = record_from_line(std::string_view(tail).substr(begin, whole - 1 - begin)))
    last_seq_ = record->seq;
}

void RunFolder::close_log() noexcept {
  if (log_ >= 0) ::close(log_);
  log_ = -1;
}

void RunFolder::append(const Record& record) {
  const std::string line = line_from_record(record) + "\n";
  if (const int error = write_all(log_, line.data(), line.size())) {
    const int ignored = ::ftruncate(log_, static_cast<off_t>(log_bytes_));
    static_cast<void>(ignored);
    fail_write(path_ / "records.jsonl", error);
  }
  log_bytes_ += line.size();
  last_seq_ = record.seq;
}

RunFolder::NewTensor RunFolder::create_tensor(const Record& record, int more_flags) const {
  const std::string stem = tensor_file_stem(record.key, record.role);
  for (int attempt = 0; attempt < 2; ++attempt) {
    NewTensor made;
    made.name = "tensors/" + stem + (attempt ? "~" + std::to_string(record.seq) : "") + ".npy";
    made.fd =
        ::open((path_ / made.name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW | more_flags, 0666);
    if (made.fd >= 0) return made;
    if (errno != EEXIST) fail_write(path_ / made.name, errno);
  }
  fail_write(path_ / ("tensors/" + stem + ".npy"), EEXIST);
}

std::string RunFolder::write_tensor(const Record& record, std::span<const std::byte> packed) {
  const NewTensor made = create_tensor(record);
  const std::string header = npy_header(*record.dtype, record.shape);
  // One call for both where it goes through whole, which is nearly always.
  const iovec parts[] = {{const_cast<char*>(header.data()), header.size()},
                         {const_cast<std::byte*>(packed.data()), packed.size()}};
  const ssize_t n = ::writev(made.fd, parts, 2);
  int error = n < 0 ? errno : 0;
  if (n >= 0 && static_cast<size_t>(n) < header.size() + packed.size()) {
    const size_t done = static_cast<size_t>(n);
    if (done < header.size()) error = write_all(made.fd, header.data() + done, header.size() - done);
    const size_t from = done < header.size() ? 0 : done - header.size();
    if (!error) error = write_all(made.fd, packed.data() + from, packed.size() - from);
  }
  if (::close(made.fd) != 0 && !error) error = errno;
  if (error) {
    ::unlink((path_ / made.name).c_str());
    fail_write(path_ / made.name, error);
  }
  return made.name;
}

std::string RunFolder::write_aligned_tensor(const Record& record, std::span<std::byte> values) {
  const std::string header = npy_header(*record.dtype, record.shape, kPageBytes);
  if (header.size() != kPageBytes) return write_tensor(record, values);
  const std::string stem = tensor_file_stem(record.key, record.role);
  const std::string name = "tensors/" + stem + ".npy";
  const fs::path path = path_ / name;
  const int fd = create_uncached(path.c_str(), O_WRONLY | O_EXCL | O_NOFOLLOW, 0666);
  if (fd < 0) {
    if (errno == EINVAL) ::unlink(path.c_str());  // made, but not to be opened so: a file system without direct writes
    return write_tensor(record, values);
  }
  std::byte* const page_before = values.data() - kPageBytes;
  std::memcpy(page_before, header.data(), header.size());
  const size_t pages = (values.size() + kPageBytes - 1) / kPageBytes + 1;
  int error = write_all(fd, page_before, pages * kPageBytes);
  if (!error && ::ftruncate(fd, static_cast<off_t>(kPageBytes + values.size())) != 0) error = errno;
  if (::close(fd) != 0 && !error) error = errno;
  if (!error) return name;
  ::unlink(path.c_str());
  if (error == EINVAL) return write_tensor(record, values);  // larger blocks than ours
  fail_write(path, error);
}

std::string RunFolder::link_tensor(const Record& record, const std::string& file) {
  const std::string stem = tensor_file_stem(record.key, record.role);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const std::string name = "tensors/" + stem + (attempt ? "~" + std::to_string(record.seq) : "") + ".npy";
    if (::link((path_ / file).c_str(), (path_ / name).c_str()) == 0) return name;
    if (errno != EEXIST) break;
  }
  // A file system without links, or with too many on this file.
  return write_tensor(record, read_npy(path_ / file, record.dtype));
}

std::optional<Record> RunFolder::find(int64_t seq) const {
  const std::shared_ptr<const MappedFile> file = MappedFile::open(path_ / "records.jsonl");
  std::string_view rest(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  const std::string beginning = "{\"seq\": " + std::to_string(seq) + ",";
  for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    if (rest.starts_with(beginning)) return record_from_line(rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
  return std::nullopt;
}

std::string RunFolder::write_tensor(const Record& record, const Tensor& tensor) {
  return write_tensor(record, tensor.contiguous().contiguous_bytes());
}

Json RunFolder::manifest() const {
  return read_json(path_ / "run.json", kMaxManifestBytes);
}

void RunFolder::write_manifest(const Json& manifest) const {
  write_atomically(path_ / "run.json", manifest.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void merge_into(Json& target, const Json& patch) {
  for (const auto& [field, value] : patch.items()) {
    if (value.is_object() && target.contains(field) && target[field].is_object())
      merge_into(target[field], value);
    else
      target[field] = value;
  }
}

bool finish_record(RunFolder& folder, Record& record, std::span<const std::byte> packed,
                   std::optional<std::span<std::byte>> aligned) {
  bool unchanged = true;
  if (!record.stats) {  // the values are here, and nobody has walked over them yet
    static const std::byte nothing{};
    const Tensor values =
        Tensor::wrap(packed.empty() ? &nothing : packed.data(), packed.empty() ? DType::kU8 : *record.dtype,
                     packed.empty() ? Shape{0} : record.shape, nullptr);
    const PassResult result = pass_over_values(values, {});
    unchanged = result.checksum == record.checksum;
    record.stats = result.stats;
    if (!record.file.empty()) {
      record.file.clear();
      record.file = aligned ? folder.write_aligned_tensor(record, *aligned) : folder.write_tensor(record, packed);
    }
  }
  return unchanged;
}

void finish_repeated_record(RunFolder& folder, Record& record, const Record& first) {
  record.stats = first.stats;
  record.file = first.file.empty() ? "" : folder.link_tensor(record, first.file);
}

std::string run_id(const Json& manifest, const fs::path& run) {
  const auto id = manifest.find("id");
  return id != manifest.end() && id->is_string() ? id->get<std::string>() : run.filename().string();
}

void recover_run(const fs::path& run) {
  if (run_is_live(run)) return;
  RunLock lock;
  if (!lock.acquire(run)) return;
  RunFolder folder(run);
  Json manifest = folder.manifest();
  if (!manifest.is_object()) fail(Code::kCorrupt, "run", run.string() + "/run.json is not a run's");
  const std::string id = run_id(manifest, run);
  if (has_spool(run, id)) {
    folder.open_log();
    recover_spool(run, id, [&](const SpooledRecord& spooled) {
      if (spooled.seq <= folder.last_seq()) return;  // its line was written, only its slot not yet cleared
      std::optional<Record> record = record_from_line(spooled.text);
      if (!record || !record->dtype) return;
      record->seq = spooled.seq;
      if (record->same_as >= 0) {
        const std::optional<Record> first = folder.find(record->same_as);
        if (!first) return;
        std::error_code error;
        fs::remove(run / ("tensors/" + tensor_file_stem(record->key, record->role) + ".npy"), error);
        finish_repeated_record(folder, *record, *first);
        folder.append(*record);
        return;
      }
      if (!record->stats &&
          spooled.data.size() != static_cast<size_t>(checked_numel(record->shape)) * dtype_bytes(*record->dtype))
        return;
      if (!record->stats && !record->file.empty()) {  // what the dead writer had begun; with statistics it had ended
        std::error_code error;
        fs::remove(run / ("tensors/" + tensor_file_stem(record->key, record->role) + ".npy"), error);
      }
      finish_record(folder, *record, spooled.data);
      folder.append(*record);
    });
  }
  if (const auto status = manifest.find("status"); status != manifest.end() && *status == "running") {
    manifest["status"] = "killed";
    manifest["finished"] = utc_now();
    folder.write_manifest(manifest);
  }
}

}  // namespace lockstep
