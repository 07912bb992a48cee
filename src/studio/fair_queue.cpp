#include "studio/fair_queue.h"

#include <algorithm>

namespace lockstep {

std::string shape_of(const Job& job) {
  // Pictures that go in have shapes of their own: only those of one job are surely alike.
  const bool alone = !job.request.uploads->pictures.empty() || job.request.first.latents;
  return job.request.shape() + (alone ? "|" + job.id : "");
}

void FairQueue::add(const std::shared_ptr<Job>& job) {
  auto& jobs = waiting_[job->client];
  if (jobs.empty()) turns_.push_back(job->client);
  jobs.push_back(job);
}

bool FairQueue::remove(const Job& job) {
  const auto found = waiting_.find(job.client);
  if (found == waiting_.end()) return false;
  const bool was = std::erase_if(found->second, [&](const auto& one) { return one.get() == &job; }) > 0;
  forget_done(job.client);
  return was;
}

void FairQueue::forget_done(const std::string& client) {
  const auto found = waiting_.find(client);
  if (found == waiting_.end()) return;
  std::erase_if(found->second, [](const auto& job) { return job->next_picture >= job->request.count; });
  if (!found->second.empty()) return;
  waiting_.erase(found);
  turns_.remove(client);
}

void FairQueue::take_from(Job& job, std::vector<PictureTask>& to, size_t most, const std::shared_ptr<Job>& shared) {
  while (to.size() < most && job.next_picture < job.request.count) to.push_back({shared, job.next_picture++});
}

std::vector<PictureTask> FairQueue::take(const std::function<size_t(const Job&)>& most) {
  std::vector<PictureTask> tasks;
  if (turns_.empty()) return tasks;
  const std::string client = turns_.front();
  turns_.splice(turns_.end(), turns_, turns_.begin());
  const std::shared_ptr<Job> first = waiting_[client].front();
  const size_t room = std::max<size_t>(1, most(*first));
  const std::string shape = shape_of(*first);
  take_from(*first, tasks, room, first);
  for (const std::string& other : turns_)
    for (const auto& job : waiting_[other])
      if (tasks.size() < room && job != first && shape_of(*job) == shape) take_from(*job, tasks, room, job);
  for (const PictureTask& task : tasks) forget_done(task.job->client);
  return tasks;
}

size_t FairQueue::alike(const Job& job) const {
  const std::string shape = shape_of(job);
  size_t pictures = 0;
  for (const auto& [client, jobs] : waiting_)
    for (const auto& one : jobs)
      if (shape_of(*one) == shape) pictures += static_cast<size_t>(one->request.count - one->next_picture);
  return pictures;
}

std::vector<std::shared_ptr<Job>> FairQueue::in_order() const {
  std::vector<std::shared_ptr<Job>> order;
  size_t longest = 0;
  for (const auto& [client, jobs] : waiting_) longest = std::max(longest, jobs.size());
  for (size_t round = 0; round < longest; ++round)
    for (const std::string& client : turns_) {
      const auto& jobs = waiting_.at(client);
      if (round < jobs.size()) order.push_back(jobs[round]);
    }
  return order;
}

size_t FairQueue::jobs_of(const std::string& client) const {
  const auto found = waiting_.find(client);
  return found == waiting_.end() ? 0 : found->second.size();
}

size_t FairQueue::pictures_of(const std::string& client) const {
  const auto found = waiting_.find(client);
  size_t all = 0;
  if (found != waiting_.end())
    for (const auto& job : found->second) all += static_cast<size_t>(job->request.count - job->next_picture);
  return all;
}

size_t FairQueue::jobs() const {
  size_t all = 0;
  for (const auto& [client, jobs] : waiting_) all += jobs.size();
  return all;
}

}  // namespace lockstep
