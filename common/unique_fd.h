// UniqueFd owns a file descriptor.
#pragma once

namespace pando {

class UniqueFd {  // -1 is none
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(other.Release()) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();
  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  int Release();

 private:
  int fd_ = -1;
};

}  // namespace pando
