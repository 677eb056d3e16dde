// Run folders of a leader and a standby, and what they have.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/hash128.h"
#include "node/standby/mirror_names.h"
#include "proto/messages.h"
#include "proto/outbox.h"
#include "tests/temp_folder.h"

namespace pando {

// A wire on which messages lie until the test takes them.
struct MirrorWire : Outbox {
  void Send(Envelope envelope) override { sent.push_back(std::move(envelope)); }
  std::vector<Envelope> Take() { return std::exchange(sent, {}); }
  std::vector<Envelope> sent;
};

inline Blob TextBlob(const std::string& text) {
  auto kept = std::make_shared<std::string>(text);
  const auto bytes = std::as_bytes(std::span(*kept));
  return Blob(bytes, std::move(kept));
}

inline std::string HashText(const std::string& text) {
  Hash128 hash;
  hash.Update(std::as_bytes(std::span(text)));
  return hash.Hex();
}

inline std::string ReadText(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// A text that differs at each place.
inline std::string CountingText(size_t size, unsigned seed = 0) {
  std::string text(size, 0);
  for (size_t i = 0; i < size; ++i)
    text[i] = static_cast<char>((i * 31 + seed * 17 + i / 253) % 251);
  return text;
}

// A run folder that a test fills as a leader does.
struct MirroredFolder : TempFolder {
  void Append(const std::string& name, const std::string& text) const {
    MakeParent(name);
    std::ofstream(File(name), std::ios::app | std::ios::binary) << text;
  }
  void Replace(const std::string& name, const std::string& text) const {
    MakeParent(name);
    const std::string draft = File(name) + ".tmp";
    std::ofstream(draft, std::ios::binary) << text;
    std::filesystem::rename(draft, File(name));
  }
  void Remove(const std::string& name) const { std::filesystem::remove(File(name)); }
  bool Has(const std::string& name) const {
    return std::filesystem::exists(std::filesystem::symlink_status(File(name)));
  }
  std::string Text(const std::string& name) const { return ReadText(File(name)); }
  // The content of each file that standbys get.
  std::map<std::string, std::string> Content() const {
    std::map<std::string, std::string> content;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path())) {
      const std::string name = entry.path().lexically_relative(path());
      const bool is_file = std::filesystem::is_regular_file(entry.symlink_status());
      if (is_file && IsMirrored(name)) content[name] = ReadText(entry.path());
    }
    return content;
  }

 private:
  void MakeParent(const std::string& name) const {
    std::filesystem::create_directories(std::filesystem::path(File(name)).parent_path());
  }
};

}  // namespace pando
