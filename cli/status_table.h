// A scheduler's answer to `pando status`, for people. Used by node_commands and top_screen.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pando {

// A process of the run. Names and hosts are as the wire says.
struct StatusNode {
  std::string name;  // "worker 1"
  std::string host;
  int process_id = 0;
  uint64_t step = 0;
  std::string doing;  // "waiting for parameters from server 1 for 5 ms"
  std::string lines;  // "shm 2, tcp 1"
  int64_t silent_ms = 0;
  bool is_ready = false;
};

struct StatusFault {
  std::string text;  // "worker 1     kill at step 7, noticed by socket, not recovered yet"
  bool is_over = false;
};

struct RunStatus {
  std::string model;
  std::string dataset;
  std::string phase;
  uint64_t step = 0;  // steps completed
  uint64_t step_count = 0;
  uint64_t view = 0;
  uint64_t clock_us = 0;  // of the scheduler's machine
  std::string waits;      // "waits: " and the reason; empty: there is none
  std::string stall;      // which process keeps the run from its next step; empty: none
  std::vector<StatusNode> nodes;
  std::string evaluated;            // a line; empty: nothing is evaluated
  std::string verified;             // a line; empty: nothing is computed twice
  std::vector<StatusFault> faults;  // those that the answer has, oldest first
};

// None where the answer is not what a scheduler of this version says.
std::optional<RunStatus> ParseStatus(const std::string& answer);
std::optional<std::string> StatusTable(const std::string& answer);

}  // namespace pando
