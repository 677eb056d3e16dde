#include "cli/doctor.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <xxhash.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "cli/commands.h"
#include "cli/reach.h"
#include "common/exit_codes.h"
#include "common/output.h"
#include "common/system.h"
#include "common/text.h"
#include "common/unique_fd.h"
#include "job/batch_check.h"
#include "kernels/opened_gpu.h"
#include "kernels/runtime_library.h"
#include "net/zmq/zmq_context.h"
#include "proto/codec.h"
#include "run/sqlite_journal.h"

namespace pando {
namespace {

namespace fs = std::filesystem;

// A scheduler of a few dozen nodes holds one or two descriptors per node.
constexpr uint64_t kOpenFilesWanted = 1024;

std::string ReadSystem() {
  utsname name{};
  if (uname(&name) != 0) return "unknown";
  return fmt::format("{} {} {}", name.sysname, name.release, name.machine);
}

std::string ReadProcessor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

uint32_t CountCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof cores, &cores) != 0) return 0;
  return static_cast<uint32_t>(CPU_COUNT(&cores));
}

// Counts the entries of a kernel folder for which `is_one` holds.
template <class F>
uint32_t CountEntries(const char* folder, const F& is_one) {
  std::error_code error;
  uint32_t count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (is_one(entry.path())) ++count;
  }
  return count;
}

uint32_t CountNumaNodes() {
  return CountEntries("/sys/devices/system/node", [](const fs::path& path) {
    const std::string name = path.filename();
    return name.starts_with("node") && name.size() > 4 && name[4] >= '0' && name[4] <= '9';
  });
}

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Counts NVIDIA's display controllers on the bus, with or without a driver.
uint32_t CountNvidiaCards() {
  return CountEntries("/sys/bus/pci/devices", [](const fs::path& path) {
    return FirstLine(path / "vendor") == "0x10de" && FirstLine(path / "class").starts_with("0x03");
  });
}

bool CanBindLoopback() {
  const UniqueFd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return socket_fd.is_open() &&
         bind(socket_fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

// Returns the version from `function` of the first library that loads; empty if none does.
std::string ReadVersion(std::initializer_list<const char*> names, const char* function) {
  Result<RuntimeLibrary> library = RuntimeLibrary::Load(names);
  if (!library.ok()) return "";
  size_t (*version)() = library->Find(function);
  return version == nullptr ? "" : Dotted(version());
}

void ReadGpus(MachineFacts* facts) {
  facts->nvidia_card_count = CountNvidiaCards();
  const Result<Nvml> nvml = Nvml::Open();
  if (nvml.ok()) {
    facts->driver_version = nvml->driver_version();
    facts->gpus = nvml->ReadGpus();
  }
  facts->is_cuda_built = HasCuda();
  if (!HasCuda() || facts->gpus.empty()) return;
  facts->cudnn = ReadVersion({"libcudnn.so.9"}, "cudnnGetVersion");
  facts->cublas = ReadVersion({"libcublasLt.so.13", "libcublasLt.so.12"}, "cublasLtGetVersion");
  const Result<OpenedGpu> gpu = OpenCuda({});
  if (!gpu.ok()) facts->cuda_trouble = gpu.status().message();
}

}  // namespace

MachineFacts ReadMachine() {
  MachineFacts facts{.system = ReadSystem(),
                     .processor = ReadProcessor(),
                     .instruction_set = InstructionSet(),
                     .core_count = CountCores(),
                     .numa_node_count = CountNumaNodes(),
                     .memory_bytes = MachineMemoryBytes(),
                     .cgroup = ReadCgroup(),
                     .has_loopback = CanBindLoopback()};
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.open_files_max = limit.rlim_cur;
  ReadGpus(&facts);
  return facts;
}

std::vector<LibraryVersion> ReadLibraries() {
  return {{"ZeroMQ", ZmqVersion()},    {"Cap'n Proto", CapnpVersion()},
          {"SQLite", SqliteVersion()}, {"libcurl", curl_version_info(CURLVERSION_NOW)->version},
          {"zlib", zlibVersion()},     {"xxHash", Dotted(XXH_versionNumber())},
          {"fmt", Dotted(FMT_VERSION)}};
}

std::vector<std::string> FindProblems(const MachineFacts& facts) {
  std::vector<std::string> problems;
  if (facts.open_files_max < kOpenFilesWanted) {
    problems.push_back(fmt::format("{} open files are allowed, {} are needed: ulimit -n {}",
                                   facts.open_files_max, kOpenFilesWanted, kOpenFilesWanted));
  }
  if (!facts.has_loopback) {
    problems.emplace_back(
        "no socket can be bound on 127.0.0.1: is the loopback interface up (ip link set lo up)?");
  }
  const auto cards = facts.nvidia_card_count;
  if (cards > 0 && facts.gpus.empty()) {
    problems.push_back(fmt::format(
        "{} NVIDIA card{} on the bus, without a driver for {}: install NVIDIA's, then try "
        "nvidia-smi",
        cards, cards == 1 ? " is" : "s are", cards == 1 ? "it" : "them"));
  }
  if (facts.gpus.empty()) return problems;
  if (!facts.is_cuda_built) {
    problems.emplace_back(
        "there is a GPU, and this pando was built without CUDA: set CUDA_HOME to its toolkit and "
        "run meson setup again");
  } else if (!facts.cuda_trouble.empty()) {
    problems.push_back(facts.cuda_trouble);
  }
  return problems;
}

std::string DescribeMachine(const MachineFacts& facts,
                            const std::vector<LibraryVersion>& libraries) {
  std::string text =
      fmt::format("pando         {}, {}, CUDA {}\n", PandoVersion(), facts.instruction_set,
                  facts.is_cuda_built ? "built in" : "not built in");
  text += fmt::format("system        {}\n", facts.system);
  text +=
      fmt::format("processor     {}, {} cores, {} NUMA node{}\n", facts.processor, facts.core_count,
                  facts.numa_node_count, facts.numa_node_count == 1 ? "" : "s");
  text += fmt::format("memory        {}\n", BytesText(facts.memory_bytes));
  if (facts.cgroup.cpus)
    text += fmt::format("cgroup        allows {:.1f} cores\n", *facts.cgroup.cpus);
  if (facts.cgroup.memory_bytes)
    text +=
        fmt::format("cgroup        allows {} of memory\n", BytesText(*facts.cgroup.memory_bytes));
  text += fmt::format("open files    {}\n", facts.open_files_max);
  text += fmt::format("driver        {}\n",
                      facts.driver_version.empty() ? "none of NVIDIA's" : facts.driver_version);
  for (size_t i = 0; i < facts.gpus.size(); ++i) {
    const GpuState& gpu = facts.gpus[i];
    text += fmt::format("cuda:{:<9}{}, compute capability {}.{}, {} of {} in use\n", i, gpu.name,
                        gpu.compute_capability / 10, gpu.compute_capability % 10,
                        BytesText(gpu.memory_used_bytes), BytesText(gpu.memory_bytes));
  }
  if (!facts.cudnn.empty()) text += fmt::format("cuDNN         {}\n", facts.cudnn);
  if (!facts.cublas.empty()) text += fmt::format("cuBLASLt      {}\n", facts.cublas);
  for (const LibraryVersion& library : libraries)
    text += fmt::format("{:<14}{}\n", library.name, library.version);
  return text;
}

namespace {

// Prints the problems, and returns an exit code.
int PrintVisit(const std::vector<std::string>& problems) {
  for (const std::string& problem : problems) Print("problem: {}\n", problem);
  Print("{}\n", problems.empty() ? "no problems" : fmt::format("{} to fix", problems.size()));
  return problems.empty() ? kExitCompleted : kExitFailed;
}

struct DoctorOptions {
  ReachOptions reach;
  std::string keys_folder;
  std::string listen;
};

Result<int> Visit(const DoctorOptions& options) {
  const bool is_joining = !options.reach.join.empty();
  if (is_joining && !options.listen.empty())
    return InvalidArgument("give --join on one machine and --listen on the other");
  if (!options.listen.empty()) {
    const auto show = [](const std::string& text) { Say("pando: {}\n", text); };
    PANDO_RETURN_IF_ERROR(ListenForDoctors(options.listen, /*stop_fd=*/-1, show));
    return kExitCompleted;
  }
  if (!is_joining) {
    const MachineFacts facts = ReadMachine();
    Print("{}", DescribeMachine(facts, ReadLibraries()));
    return PrintVisit(FindProblems(facts));
  }
  ReachOptions reach = options.reach;
  PANDO_RETURN_IF_ERROR(CheckEndpoints("--join", reach.join));
  PANDO_ASSIGN_OR_RETURN(reach.keys, FindKeys(options.keys_folder, KeyRole::kReader));
  const ReachReport report = TryReach(reach);
  for (const std::string& line : report.found) Print("{}\n", line);
  return PrintVisit(report.problems);
}

}  // namespace

Subcommand AddDoctorCommand(CLI::App& app) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App& command = DeclareCommand(
      app, "doctor", "Prints what this machine has for a run, and any problems.",
      "Exit code 1 if there is a problem.\n\n"
      "Whether two machines reach each other, before a run or, without --listen, during one:\n"
      "  pando doctor --listen tcp://0.0.0.0:7070   # where the scheduler is to be\n"
      "  pando doctor --join tcp://10.0.0.1:7070    # on each other machine\n");
  AddOption(command, "--join ENDPOINT", &options->reach.join,
            "try to reach the scheduler there, or the doctor that listens there");
  AddKeysOption(command, &options->keys_folder);
  AddOption(command, "--bind ENDPOINT", &options->reach.bind,
            "where this machine's servers are to listen [this machine's address on the way to "
            "--join]");
  AddOption(command, "--listen ENDPOINT", &options->listen,
            "answer doctors of other machines, and try to reach those; Ctrl-C ends it");
  return [options] { return Visit(*options); };
}

}  // namespace pando
