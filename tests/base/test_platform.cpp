// What every system's form of a facility promises.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "base/platform/descriptors.h"
#include "base/platform/executable.h"
#include "base/platform/file_watch.h"
#include "base/platform/machine_facts.h"
#include "base/platform/memory_maps.h"
#include "base/platform/process_end.h"
#include "base/platform/ready_sockets.h"
#include "base/platform/spawn.h"
#include "base/process.h"

namespace lockstep {
namespace {

bool is_readable(int fd, int milliseconds = 0) {
  pollfd watched{fd, POLLIN, 0};
  return ::poll(&watched, 1, milliseconds) > 0;
}

bool closes_on_exec(int fd) {
  return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0;
}

fs::path own_folder(const char* name) {
  const fs::path folder = fs::temp_directory_path() / (std::string(name) + std::to_string(::getpid()));
  fs::create_directories(folder);
  return folder;
}

TEST(Platform, TheProgramKnowsItselfAndItsWords) {
  EXPECT_TRUE(own_program().is_absolute());
  EXPECT_EQ(own_program().filename(), "test_base");
  ASSERT_FALSE(own_command_line().empty());
  EXPECT_EQ(own_program_file().bytes, fs::file_size(own_program()));
  EXPECT_GT(own_program_file().modified_secs, 1'500'000'000);
  bool path = false;
  for (char** entry = environment_entries(); *entry; ++entry) path |= std::strncmp(*entry, "PATH=", 5) == 0;
  EXPECT_TRUE(path);
}

TEST(Platform, DescriptorsAreClosedOnExec) {
  int pipe_ends[2], ends[2];
  ASSERT_EQ(make_pipe(pipe_ends), 0);
  ASSERT_EQ(make_socket_pair(ends), 0);
  const int socket = make_socket(AF_UNIX, Waiting::kNever), file = make_unnamed_file("test");
  for (const int fd : {pipe_ends[0], pipe_ends[1], ends[0], ends[1], socket, file}) {
    ASSERT_GE(fd, 0);
    EXPECT_TRUE(closes_on_exec(fd));
    ::close(fd);
  }
}

TEST(Platform, AGoneReaderIsAnErrorAndNoSignal) {
  int ends[2];
  ASSERT_EQ(make_socket_pair(ends), 0);
  EXPECT_FALSE(peer_has_closed(ends[0]));
  EXPECT_EQ(user_of_peer(ends[0]), static_cast<int64_t>(::geteuid()));
  EXPECT_EQ(send_without_signal(ends[0], "x", 1), 1);
  ::close(ends[1]);
  EXPECT_EQ(send_without_signal(ends[0], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_TRUE(peer_has_closed(ends[0]));
  ::close(ends[0]);
}

TEST(Platform, TheUserOfATcpPeerIsFound) {
  const int listener = make_socket(AF_INET);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof own;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&own), bytes), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&own), &bytes), 0);
  const int client = make_socket(AF_INET);
  ASSERT_EQ(::connect(client, reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
  sockaddr_in peer{};
  socklen_t peer_bytes = sizeof peer;
  const int accepted = accept_socket(listener, reinterpret_cast<sockaddr*>(&peer), &peer_bytes);
  ASSERT_GE(accepted, 0);
  EXPECT_TRUE(closes_on_exec(accepted));
  EXPECT_EQ(user_of_peer(peer, own), static_cast<int64_t>(::geteuid()));
  sockaddr_in nobody = peer;
  nobody.sin_port = 0;
  EXPECT_EQ(user_of_peer(nobody, own), -1);
  for (const int fd : {listener, client, accepted}) ::close(fd);
}

TEST(Platform, ARenameLeavesWhatIsThere) {
  const fs::path folder = own_folder("lockstep-rename-");
  write_atomically(folder / "a", "a");
  write_atomically(folder / "b", "b");
  EXPECT_NE(rename_without_replacing((folder / "a").c_str(), (folder / "b").c_str()), 0);
  EXPECT_EQ(errno, EEXIST);
  EXPECT_EQ(rename_without_replacing((folder / "a").c_str(), (folder / "c").c_str()), 0);
  EXPECT_EQ(read_text(folder / "b", 10), "b");
  EXPECT_EQ(read_text(folder / "c", 10), "a");
  fs::remove_all(folder);
}

TEST(Platform, AWatchedFileTellsOnceForAChange) {
  const fs::path folder = own_folder("lockstep-watch-");
  write_atomically(folder / "log", "");
  FileWatch watch(folder / "log");
  ASSERT_GE(watch.descriptor(), 0);
  EXPECT_FALSE(is_readable(watch.descriptor()));
  for (int turn = 0; turn < 2; ++turn) {
    std::ofstream(folder / "log", std::ios::app) << "line\n";
    EXPECT_TRUE(is_readable(watch.descriptor(), 5000));
    watch.forget_events();
    EXPECT_FALSE(is_readable(watch.descriptor()));
  }
  EXPECT_EQ(FileWatch(folder / "none").descriptor(), -1);
  fs::remove_all(folder);
}

TEST(Platform, RoomIsReservedAndMapped) {
  const fs::path folder = own_folder("lockstep-room-");
  const int fd = ::open((folder / "room").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(reserve_bytes(fd, 100000), 0);
  EXPECT_EQ(fs::file_size(folder / "room"), 100000u);
  auto* map = static_cast<char*>(map_shared(fd, 100000));
  ASSERT_NE(map, nullptr);
  map[99999] = 'x';
  char read = 0;
  EXPECT_EQ(::pread(fd, &read, 1, 99999), 1);
  EXPECT_EQ(read, 'x');
  ::close(fd);
  fs::remove_all(folder);
}

pid_t start_sleeper(std::initializer_list<int> inherited = {}) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  short flags = 0;
  hand_on_only(actions, flags, 3, inherited);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, flags);
  char name[] = "sleep", secs[] = "60";
  char* argv[] = {name, secs, nullptr};
  pid_t pid = -1;
  EXPECT_EQ(::posix_spawnp(&pid, "sleep", &actions, &attributes, argv, environment_entries()), 0);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  return pid;
}

TEST(Platform, TheEndOfAProcessIsADescriptor) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);  // without close-on-exec: the child must not hold it all the same
  const pid_t pid = start_sleeper();
  ::close(ends[1]);
  EXPECT_TRUE(is_readable(ends[0], 5000));
  ::close(ends[0]);
  // A process that has just become another program has no command line for a moment.
  auto facts = process_facts(pid);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (facts && facts->command.find("sleep") == std::string::npos && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
    facts = process_facts(pid);
  }
  ASSERT_TRUE(facts);
  EXPECT_EQ(facts->parent, ::getpid());
  EXPECT_NE(facts->command.find("sleep"), std::string::npos);
  const auto all = own_processes();
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const ProcessFacts& one) { return one.pid == pid; }));
  const int end = process_end_descriptor(pid);
  ASSERT_GE(end, 0);
  EXPECT_FALSE(is_readable(end));
  ProcessFacts stranger = *facts;
  ++stranger.start_ticks;
  EXPECT_FALSE(send_signal(stranger, SIGKILL));
  EXPECT_TRUE(is_alive(*facts));
  EXPECT_TRUE(send_signal(*facts, SIGTERM));
  EXPECT_TRUE(is_readable(end, 5000));
  const int late = process_end_descriptor(pid);  // it has ended, and nobody has waited for it
  EXPECT_TRUE(late >= 0 && is_readable(late, 1000));
  EXPECT_FALSE(is_alive(*facts));
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(name_of_signal(WTERMSIG(status)), "SIGTERM");
  ::close(end);
  ::close(late);
  EXPECT_EQ(process_end_descriptor(pid), -1);
}

TEST(Platform, SocketsTellOfChangesAndHangUps) {
  ReadySockets sockets;
  ASSERT_TRUE(sockets.open());
  int ends[2];
  ASSERT_EQ(make_socket_pair(ends), 0);
  sockets.add(ends[0]);
  EXPECT_TRUE(sockets.wait(std::chrono::milliseconds(0)).empty());  // that it can be written to is no change
  sockets.expect_room(ends[0]);
  EXPECT_EQ(sockets.wait(std::chrono::seconds(5)).size(), 1u);
  EXPECT_TRUE(sockets.wait(std::chrono::milliseconds(0)).empty());
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  auto ready = sockets.wait(std::chrono::seconds(5));
  ASSERT_EQ(ready.size(), 1u);
  EXPECT_EQ(ready[0].fd, ends[0]);
  EXPECT_FALSE(ready[0].hung_up);
  std::thread other([&] { sockets.wake(); });
  EXPECT_TRUE(sockets.wait(std::chrono::seconds(5)).empty());
  other.join();
  ::close(ends[1]);
  ready = sockets.wait(std::chrono::seconds(5));
  ASSERT_FALSE(ready.empty());
  EXPECT_TRUE(std::any_of(ready.begin(), ready.end(), [](const auto& one) { return one.hung_up; }));
  sockets.remove(ends[0]);
  ::close(ends[0]);
}

TEST(Platform, TheMachineIsDescribed) {
  EXPECT_GE(cpu_facts().cores, 1);
  EXPECT_GT(memory_facts().total_bytes, memory_facts().available_bytes);
  EXPECT_GT(memory_facts().available_bytes, 0u);
  EXPECT_GT(resident_bytes(), 1u << 20);
  EXPECT_GE(peak_resident_bytes() + (1 << 20), resident_bytes());
}

TEST(Platform, AWaitingSignalIsTakenAway) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  take_pending_signal(blocked);  // there is none, and it does not wait for one
  ::pthread_kill(::pthread_self(), SIGXFSZ);
  take_pending_signal(blocked);
  sigset_t pending;
  ::sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGXFSZ), 0);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace
}  // namespace lockstep
