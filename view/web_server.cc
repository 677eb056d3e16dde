#include "view/web_server.h"

#include <fmt/core.h>
#include <httplib.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "common/endpoint.h"
#include "common/system.h"
#include "common/text.h"
#include "view/bounded_server.h"
#include "view/page_files.h"
#include "view/request_queue.h"
#include "view/run_watch.h"

namespace pando {
namespace {

using Json = nlohmann::json;

constexpr auto kUpdateInterval = std::chrono::milliseconds(500);
constexpr int kStreamsMax = 12;  // threads of RequestQueue
constexpr size_t kBodyBytesMax = 4096;
constexpr size_t kHeadersMax = 100;  // browsers send about 20
constexpr const char* kText = "text/plain; charset=utf-8";
constexpr const char* kJson = "application/json";
// A comment of the stream, sent when there is nothing new, to find readers that have gone.
constexpr std::string_view kNothingNew = ": \n\n";

std::string DumpText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string EventText(const char* name, const Json& data) {
  return fmt::format("event: {}\ndata: {}\n\n", name, DumpText(data));
}

void AnswerText(httplib::Response& response, int status, const std::string& text) {
  response.status = status;
  response.set_content(text + "\n", kText);
}

void AnswerError(httplib::Response& response, int status, const std::string& error) {
  response.status = status;
  response.set_content(DumpText({{"error", error}}), kJson);
}

// Returns whether our page sent the request. Another site's page cannot set X-Pando without our
// consent (CORS), and browsers name the page and the site from which a request comes.
bool IsFromOurPage(const httplib::Request& request) {
  const std::string origin = request.get_header_value("Origin");
  const std::string host = request.get_header_value("Host");
  const std::string site = request.get_header_value("Sec-Fetch-Site");
  return request.get_header_value("X-Pando") == "1" &&
         request.get_header_value("Content-Type").starts_with(kJson) &&
         (origin.empty() || origin == "http://" + host || origin == "https://" + host) &&
         (site.empty() || site == "same-origin");
}

}  // namespace

class WebServer::Impl {
 public:
  Impl(std::vector<std::unique_ptr<RunWatch>>& runs, const prometheus::Registry& registry)
      : runs_(runs), registry_(registry) {}
  ~Impl();

  Result<std::string> Start(const WebOptions& options);

 private:
  // The state of one reader of the stream.
  struct Reader {
    bool is_first = true;
    std::vector<RunWatch::Mark> marks;  // by run
  };

  void SetLimits();
  void Get(const std::string& path, const httplib::Server::Handler& handler);
  void AddPages();
  void AddCommand(const char* path, CommandKind kind);
  // Returns whether the request is for a page's file or has the token. Otherwise answers it.
  bool Admit(const httplib::Request& request, httplib::Response& response);
  bool IsPageFile(std::string_view path) const;
  RunWatch* FindRun(const std::string& number);
  void OnCommand(CommandKind kind, const httplib::Request& request, httplib::Response& response);
  void OnLog(const httplib::Request& request, httplib::Response& response);
  void OnStream(httplib::Response& response);
  // Writes the events since the last call. Returns false if the reader has gone.
  bool WriteEvents(Reader* reader, httplib::DataSink& sink);
  void WaitForNext();

  std::vector<std::unique_ptr<RunWatch>>& runs_;
  const prometheus::Registry& registry_;
  std::string token_;
  std::string base_path_;
  BoundedServer server_;
  std::atomic<int> streams_ = 0;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool is_stopped_ = false;  // guarded by mutex_
  std::thread thread_;       // accepts connections
};

WebServer::WebServer(std::vector<std::unique_ptr<RunWatch>>& runs,
                     const prometheus::Registry& registry)
    : impl_(std::make_unique<Impl>(runs, registry)) {}

WebServer::~WebServer() = default;

Result<std::string> WebServer::Start(const WebOptions& options) { return impl_->Start(options); }

WebServer::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  stopped_.notify_all();
  server_.stop();
  if (thread_.joinable()) thread_.join();
}

Result<std::string> WebServer::Impl::Start(const WebOptions& options) {
  token_ = options.token;
  base_path_ = options.base_path;
  SetLimits();
  AddPages();
  AddCommand("/api/drain", CommandKind::kDrain);
  AddCommand("/api/snapshot", CommandKind::kSnapshot);
  AddCommand("/api/stop", CommandKind::kStop);
  int port = options.port;
  if (port == 0) port = server_.bind_to_any_port(options.host);
  if (port <= 0 || (options.port != 0 && !server_.bind_to_port(options.host, port))) {
    return Unavailable(
        fmt::format("cannot listen at {}:{}; give another address or port with "
                    "--http, or port 0 for a free one",
                    Bracketed(options.host), options.port));
  }
  thread_ = std::thread([this] { server_.listen_after_bind(); });
  return fmt::format("http://{}:{}{}/#token={}", Bracketed(options.host), port, base_path_, token_);
}

void WebServer::Impl::SetLimits() {
  server_.new_task_queue = [] { return new RequestQueue; };  // the server owns it
  server_.set_payload_max_length(kBodyBytesMax);
  server_.set_read_timeout(2, 0);
  server_.set_write_timeout(5, 0);
  // httplib's default would let another process listen at the same port.
  server_.set_socket_options([](socket_t socket) {
    const int on = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  });
  server_.set_default_headers(
      {{"Content-Security-Policy", "default-src 'self'; style-src 'self' 'unsafe-inline'"},
       {"X-Content-Type-Options", "nosniff"},
       {"X-Frame-Options", "DENY"},
       {"Referrer-Policy", "no-referrer"},
       {"Cache-Control", "no-store"}});
  server_.set_pre_routing_handler(
      [this](const httplib::Request& request, httplib::Response& response) {
        return Admit(request, response) ? httplib::Server::HandlerResponse::Unhandled
                                        : httplib::Server::HandlerResponse::Handled;
      });
  server_.set_error_handler([](const httplib::Request&, httplib::Response& response) {
    if (!response.body.empty()) return;
    response.set_content(fmt::format("{}\n", response.status), kText);
  });
}

bool WebServer::Impl::Admit(const httplib::Request& request, httplib::Response& response) {
  if (request.headers.size() > kHeadersMax) {
    AnswerText(response, 431, "too many headers");
    return false;
  }
  // A packed body may be small, but endless once it is unpacked.
  if (request.has_header("Content-Encoding")) {
    AnswerText(response, 415, "no packed bodies");
    return false;
  }
  // httplib would repeat a file for each of many ranges.
  if (!request.ranges.empty()) {
    AnswerText(response, 416, "no ranges");
    return false;
  }
  if (IsPageFile(request.path)) return true;  // these files have nothing about a run
  if (AreEqualSecrets(request.get_header_value("Authorization"), "Bearer " + token_)) return true;
  response.set_header("WWW-Authenticate", "Bearer");
  AnswerText(response, 401,
             "This needs the token of the address that pando view printed, as the header "
             "\"Authorization: Bearer TOKEN\".");
  return false;
}

bool WebServer::Impl::IsPageFile(std::string_view path) const {
  if (path == base_path_) return true;  // it redirects to the page
  if (path.starts_with(base_path_ + "/")) path.remove_prefix(base_path_.size());
  return std::ranges::find(PageFiles(), path, &PageFile::path) != PageFiles().end();
}

void WebServer::Impl::Get(const std::string& path, const httplib::Server::Handler& handler) {
  server_.Get(path, handler);
  if (!base_path_.empty()) server_.Get(base_path_ + path, handler);
}

void WebServer::Impl::AddPages() {
  for (const PageFile& file : PageFiles()) {
    Get(std::string(file.path), [&file](const httplib::Request&, httplib::Response& response) {
      response.set_content(file.text.data(), file.text.size(), std::string(file.type));
    });
  }
  if (!base_path_.empty()) {
    server_.Get(base_path_, [this](const httplib::Request&, httplib::Response& response) {
      response.set_redirect(base_path_ + "/", 303);  // the page's links are relative
    });
  }
  Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    const prometheus::TextSerializer serializer;
    response.set_content(serializer.Serialize(registry_.Collect()), "text/plain; version=0.0.4");
  });
  Get("/api/log", [this](const httplib::Request& request, httplib::Response& response) {
    OnLog(request, response);
  });
  Get("/api/stream",
      [this](const httplib::Request&, httplib::Response& response) { OnStream(response); });
}

RunWatch* WebServer::Impl::FindRun(const std::string& number) {
  const std::optional<size_t> index = ParseNumber<size_t>(number);
  return index && *index < runs_.size() ? runs_[*index].get() : nullptr;
}

void WebServer::Impl::OnLog(const httplib::Request& request, httplib::Response& response) {
  RunWatch* run = FindRun(request.get_param_value("run"));
  const std::optional<std::string> log =
      run == nullptr ? std::nullopt : run->ReadLog(request.get_param_value("name"));
  if (!log) return AnswerText(response, 404, "the run has no such log");
  response.set_content(*log, kText);
}

void WebServer::Impl::AddCommand(const char* path, CommandKind kind) {
  const auto answer = [this, kind](const httplib::Request& request, httplib::Response& response) {
    OnCommand(kind, request, response);
  };
  server_.Post(path, answer);
  if (!base_path_.empty()) server_.Post(base_path_ + path, answer);
}

void WebServer::Impl::OnCommand(CommandKind kind, const httplib::Request& request,
                                httplib::Response& response) {
  if (!IsFromOurPage(request))
    return AnswerError(response, 403, "commands are taken from the viewer's own page alone");
  if (request.body.size() > kBodyBytesMax) return AnswerError(response, 413, "too many bytes");
  const Json body = Json::parse(request.body, nullptr, /*allow_exceptions=*/false);
  const auto number = body.is_object() ? body.find("run") : body.end();
  RunWatch* run =
      number != body.end() && number->is_number_unsigned() ? FindRun(number->dump()) : nullptr;
  const auto node = body.is_object() ? body.find("node") : body.end();
  Command command{.kind = kind, .target = ""};
  if (node != body.end() && node->is_string()) command.target = node->get<std::string>();
  if (run == nullptr || (kind == CommandKind::kDrain && command.target.empty()))
    return AnswerError(response, 400, "expected {\"run\": 0}, and \"node\" to drain a process");
  const Result<std::string> done = run->Order(command);
  if (!done.ok()) {
    const bool is_refused = done.status().code() == StatusCode::kInvalidArgument;
    return AnswerError(response, is_refused ? 409 : 503, done.status().message());
  }
  response.set_content(DumpText({{"text", *done}}), kJson);
}

void WebServer::Impl::OnStream(httplib::Response& response) {
  if (streams_.fetch_add(1) >= kStreamsMax) {
    --streams_;
    return AnswerText(response, 503, "too many pages are open; close one");
  }
  auto reader = std::make_shared<Reader>();
  reader->marks.resize(runs_.size());
  response.set_chunked_content_provider(
      "text/event-stream",
      [this, reader](size_t, httplib::DataSink& sink) {
        if (!WriteEvents(reader.get(), sink)) return false;
        WaitForNext();
        const std::lock_guard lock(mutex_);
        return !is_stopped_;
      },
      [this](bool) { --streams_; });
}

// Sends the events of one run at a time, because all together may be large.
bool WebServer::Impl::WriteEvents(Reader* reader, httplib::DataSink& sink) {
  bool is_read = true;
  bool has_written = false;
  const auto write = [&](std::string_view text) {
    has_written = true;
    is_read = is_read && sink.write(text.data(), text.size());
  };
  if (std::exchange(reader->is_first, false)) {
    Json hello{{"version", PandoVersion()}, {"columns", Json::array()}, {"runs", Json::array()}};
    for (const StepCell cell : kPageCells) hello["columns"].push_back(kStepColumns[cell]);
    for (size_t i = 0; i < runs_.size(); ++i) {
      hello["runs"].push_back(runs_[i]->Hello());
      hello["runs"].back()["run"] = i;
    }
    write(EventText("hello", hello));
  }
  for (size_t i = 0; is_read && i < runs_.size(); ++i) {
    std::optional<Json> update = runs_[i]->Update(&reader->marks[i]);
    if (!update) continue;
    (*update)["run"] = i;
    write(EventText("update", *update));
  }
  if (!has_written) write(kNothingNew);
  return is_read;
}

void WebServer::Impl::WaitForNext() {
  std::unique_lock lock(mutex_);
  stopped_.wait_for(lock, kUpdateInterval, [&] { return is_stopped_; });
}

}  // namespace pando
