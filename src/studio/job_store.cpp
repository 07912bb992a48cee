#include "studio/job_store.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <random>

#include "base/folder.h"
#include "base/json.h"
#include "base/log.h"

namespace lockstep {
namespace {

constexpr uint64_t kMostStateBytes = 1 << 20;
constexpr uint64_t kMostRequestBytes = 160ull << 20;  // latents may be in it

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    fail(Code::kIo, "images", "cannot make the folder " + folder.string() + ": " + error.message(),
         {.hint = "--home with a folder you may write to"});
  ::chmod(folder.c_str(), 0700);
}

void write_upload(const fs::path& to, const Upload& upload) {
  if (upload.spooled.empty()) return write_atomically(to, upload.bytes);
  std::error_code error;
  fs::rename(upload.spooled, to, error);
  if (error) fail(Code::kIo, "images", "cannot keep a picture: " + error.message());
}

}  // namespace

bool is_job_id(std::string_view id) {
  constexpr std::string_view kStart = "job_";
  if (id.size() != kStart.size() + 24 || !id.starts_with(kStart)) return false;
  return std::all_of(id.begin() + kStart.size(), id.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string new_job_id() {
  thread_local std::random_device device;  // asks the processor what it is each time it is made
  return fmt::format("job_{:08x}{:08x}{:08x}", device(), device(), device());
}

JobStore::JobStore(fs::path folder) : folder_(std::move(folder)) {}

fs::path JobStore::folder_of(const std::string& id) const {
  return folder_ / "jobs" / id;
}

void JobStore::create(Job& job) {
  const fs::path folder = folder_of(job.id);
  make_folder(folder_);
  make_folder(folder_ / "jobs");
  make_folder(folder);
  auto kept = std::make_shared<Uploads>();
  const Uploads& given = *job.request.uploads;
  for (size_t i = 0; i < given.pictures.size(); ++i) {
    const fs::path to = folder / fmt::format("upload-{:02d}", i);
    write_upload(to, given.pictures[i]);
    kept->pictures.push_back({{}, to});
  }
  if (given.has_mask) {
    write_upload(folder / "upload-mask", given.mask);
    kept->mask = {{}, folder / "upload-mask"};
    kept->has_mask = true;
  }
  job.request.uploads = kept;
  write_atomically(folder / "request.json", Json{{"kind", job.request.kind},
                                                 {"model", job.request.model},
                                                 {"client", job.client},
                                                 {"waited_for", job.waited_for},
                                                 {"pictures", given.pictures.size()},
                                                 {"mask", given.has_mask},
                                                 {"fields", job.request.fields}}
                                                .dump());
  save(job);
}

void JobStore::save(const Job& job) const {
  Json pictures = Json::array();
  for (const DrawnPicture& picture : job.pictures)
    pictures.push_back({{"id", picture.id},
                        {"format", picture.format},
                        {"seed", picture.seed},
                        {"width", picture.width},
                        {"height", picture.height},
                        {"layer", picture.layer},
                        {"bytes", picture.size_bytes}});
  const Json state{{"status", state_name(job.state)},
                   {"created", job.created},
                   {"started", job.started},
                   {"finished", job.finished},
                   {"pictures", pictures},
                   {"timings", timings_json(job.timings)},
                   {"error_code", job.error_code},
                   {"error_message", job.error_message}};
  write_atomically(folder_of(job.id) / "state.json", state.dump(-1, ' ', false, Json::error_handler_t::replace));
}

void JobStore::add_picture(const Job& job, const DrawnPicture& picture) const {
  make_folder(folder_);
  make_folder(folder_ / "jobs");
  make_folder(folder_of(job.id));
  write_atomically(folder_of(job.id) / picture.id, picture.bytes);
}

void JobStore::remove(const std::string& id) const {
  std::error_code error;
  fs::remove_all(folder_of(id), error);
}

bool JobStore::exists(const std::string& id) const {
  std::error_code error;
  return fs::is_directory(folder_of(id), error);
}

std::shared_ptr<const MappedFile> JobStore::open_picture(const std::string& job, const DrawnPicture& picture) const {
  return MappedFile::open(folder_of(job) / picture.id);
}

std::vector<JobStore::Stored> JobStore::stored() const {
  std::vector<Stored> all;
  std::error_code error;
  fs::remove_all(spool_folder(), error);
  for (const fs::directory_entry& entry : folder_entries(folder_ / "jobs", "images")) {
    const std::string id = entry.path().filename().string();
    if (!is_job_id(id)) continue;
    const fs::path folder = entry.path();
    for (const fs::directory_entry& file : folder_entries(folder, "images"))
      if (file.path().filename().string().find(".tmp-") != std::string::npos) fs::remove(file.path(), error);
    try {
      Stored one{id, read_json(folder / "request.json", kMostRequestBytes),
                 read_json(folder / "state.json", kMostStateBytes), nullptr};
      auto uploads = std::make_shared<Uploads>();
      const auto pictures = one.request.at("pictures").get<size_t>();
      for (size_t i = 0; i < std::min(pictures, kMostPictures); ++i)
        uploads->pictures.push_back({{}, folder / fmt::format("upload-{:02d}", i)});
      uploads->has_mask = one.request.at("mask").get<bool>();
      if (uploads->has_mask) uploads->mask = {{}, folder / "upload-mask"};
      one.uploads = uploads;
      one.state.at("created").get<double>();
      all.push_back(std::move(one));
    } catch (const std::exception& problem) {  // it was killed before the job was whole, or is a picture without one
      note("images", "{} is not whole: {}", id, problem.what());
      fs::remove_all(folder, error);
    }
  }
  std::sort(all.begin(), all.end(), [](const Stored& a, const Stored& b) {
    return a.state["created"].get<double>() < b.state["created"].get<double>();
  });
  return all;
}

}  // namespace lockstep
