#include "run/etcd/etcd_client.h"

#include <curl/curl.h>
#include <fmt/core.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/endpoint.h"
#include "common/text.h"
#include "files/json_depth.h"

namespace pando {
namespace {

using Json = nlohmann::json;

constexpr size_t kAnswerBytesMax = size_t{64} << 20;
constexpr int64_t kRecordsPerGet = 8;  // of 1 MiB or less, so that an answer arrives in time

// ---- etcd's JSON: numbers are texts, texts are base64, and empty fields are left out ------------

std::string Base64(const std::string& bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                  reinterpret_cast<const unsigned char*>(bytes.data()),
                  static_cast<int>(bytes.size()));
  text.pop_back();  // a zero byte
  return text;
}

const Json& Field(const Json& json, const char* name) {
  static const Json kNone;
  return json.is_object() && json.contains(name) ? json[name] : kNone;
}
std::string Text(const Json& json, const char* name) {
  const Json& field = Field(json, name);
  return field.is_string() ? field.get<std::string>() : std::string();
}
int64_t Number(const Json& json, const char* name) {
  return ParseNumber<int64_t>(Text(json, name)).value_or(0);
}
// Returns nothing if the text is not base64.
std::string Bytes(const Json& json, const char* name) {
  const std::string text = Text(json, name);
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  const auto padding = std::ranges::count(text, '=');
  bytes.resize(static_cast<size_t>(std::max<ptrdiff_t>(0, size - padding)));
  return bytes;
}

Json ToJson(const EtcdCompare& compare) {
  const bool is_mod = compare.which == EtcdCompare::Revision::kMod;
  return {{"key", Base64(compare.key)},
          {"target", is_mod ? "MOD" : "CREATE"},
          {is_mod ? "mod_revision" : "create_revision", std::to_string(compare.revision)}};
}

std::string KeyIn(const EtcdOp& op) {
  return std::visit([](const auto& any) { return any.key; }, op);
}

Json ToJson(const EtcdOp& op) {
  Json json{{"key", Base64(KeyIn(op))}};
  if (const auto* put = std::get_if<EtcdPut>(&op)) {
    json["value"] = Base64(put->value);
    json["lease"] = std::to_string(put->lease);
    return {{"request_put", std::move(json)}};
  }
  const auto* get = std::get_if<EtcdGet>(&op);
  json["range_end"] = Base64(get != nullptr ? get->end : std::get<EtcdDelete>(op).end);
  if (get == nullptr) return {{"request_delete_range", std::move(json)}};
  json["limit"] = std::to_string(get->records_max);
  return {{"request_range", std::move(json)}};
}

template <class T>
Json ToJson(const std::vector<T>& items) {
  Json all = Json::array();
  for (const T& item : items) all.push_back(ToJson(item));
  return all;
}

std::string BodyText(const Json& json) {  // a name or a password may be no UTF-8
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// ---- answers ------------------------------------------------------------------------------------

struct Answer {
  CURLcode code = CURLE_OK;
  std::string error;  // curl's
  long http_status = 0;
  std::string body;
};

size_t Append(char* bytes, size_t, size_t count, void* to) {
  std::string& body = *static_cast<std::string*>(to);
  if (body.size() + count > kAnswerBytesMax) return 0;  // ends the transfer
  body.append(bytes, count);
  return count;
}

struct KnownError {
  const char* text;  // a part of etcd's message
  StatusCode code;
  const char* advice;
};
constexpr const char* kTokenRefused = "auth token";
constexpr std::array<KnownError, 8> kKnownErrors{{
    {kTokenRefused, StatusCode::kInvalidArgument, "check etcd's option --auth-token"},
    {"authentication failed", StatusCode::kInvalidArgument, "check the user and the password"},
    {"authentication is not enabled", StatusCode::kInvalidArgument,
     "give no user, or enable etcd's authentication"},
    {"user name is empty", StatusCode::kInvalidArgument, "give a user and a password"},
    {"permission denied", StatusCode::kInvalidArgument,
     "grant the user a role that may read and write these keys"},
    {"too large", StatusCode::kInvalidArgument, "start etcd with its default --max-request-bytes"},
    {"database space exceeded", StatusCode::kNoSpace,
     "compact and defragment etcd, then disarm its alarm (etcdctl compact, defrag, alarm disarm)"},
    {"lease not found", StatusCode::kNotFound, "get another lease"},
}};

Status EtcdError(const std::string& message) {
  for (const KnownError& known : kKnownErrors) {
    if (message.find(known.text) != std::string::npos)
      return {known.code, fmt::format("{}; {}", message, known.advice)};
  }
  return Unavailable(message);
}

Result<Json> ReadAnswer(const Answer& answer) {
  constexpr std::array kOfFiles{CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CERTPROBLEM,
                                CURLE_SSL_CACERT_BADFILE};
  if (std::ranges::find(kOfFiles, answer.code) != kOfFiles.end())
    return InvalidArgument(answer.error + "; check the files of the CA, certificate and key");
  if (answer.code != CURLE_OK) return Unavailable(answer.error);
  Json json = IsDeepJson(answer.body) ? Json() : Json::parse(answer.body, nullptr, false);
  if (!json.is_object()) {
    return Unavailable(
        fmt::format("HTTP status {} without the JSON of etcd 3.4 or later", answer.http_status));
  }
  const Json& error = Field(json, "error");
  if (answer.http_status == 200 && error.is_null()) return json;
  return EtcdError(error.is_object() ? Text(error, "message") : Text(json, "error"));
}

}  // namespace

Result<EtcdOptions> ParseEtcdUrls(const std::string& urls) {
  EtcdOptions options;
  options.endpoints = SplitEndpoints(urls);
  for (const std::string& url : options.endpoints) {
    const size_t scheme = url.starts_with("https://") ? 8 : url.starts_with("http://") ? 7 : 0;
    if (scheme == 0 || !ParsePeerEndpoint("tcp://" + url.substr(scheme)).ok()) {
      return InvalidArgument(
          fmt::format("'{}' is not an address of etcd: expected http://HOST:PORT "
                      "or https://HOST:PORT, and a comma between two",
                      Printable(url)));
    }
  }
  return options;
}

// ---- HTTP ---------------------------------------------------------------------------------------

struct EtcdClient::Connection {
  void SetUp(const EtcdOptions& options);
  Answer Post(const std::string& url, const std::string& token, const std::string& body);

  void Set(CURLoption option, const auto& value) { curl_easy_setopt(curl.get(), option, value); }
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl{curl_easy_init(), &curl_easy_cleanup};
};

void EtcdClient::Connection::SetUp(const EtcdOptions& options) {
  const auto ms = [](Micros limit) {
    return static_cast<long>(std::chrono::ceil<std::chrono::milliseconds>(limit).count());
  };
  PANDO_CHECK(curl != nullptr);
  Set(CURLOPT_PROTOCOLS_STR, "http,https");
  Set(CURLOPT_NOPROXY, "*");
  Set(CURLOPT_NOSIGNAL, 1L);
  Set(CURLOPT_CONNECTTIMEOUT_MS, ms(options.connect_limit));
  Set(CURLOPT_TIMEOUT_MS, ms(options.request_limit));
  if (!options.ca_file.empty()) Set(CURLOPT_CAINFO, options.ca_file.c_str());
  if (!options.certificate_file.empty()) Set(CURLOPT_SSLCERT, options.certificate_file.c_str());
  if (!options.key_file.empty()) Set(CURLOPT_SSLKEY, options.key_file.c_str());
  Set(CURLOPT_WRITEFUNCTION, Append);
}

Answer EtcdClient::Connection::Post(const std::string& url, const std::string& token,
                                    const std::string& body) {
  Answer answer;
  std::array<char, CURL_ERROR_SIZE> error{};
  curl_slist* list = curl_slist_append(nullptr, "Content-Type: application/json");
  list = curl_slist_append(list, "Expect:");  // so that curl sends the body at once
  if (!token.empty()) list = curl_slist_append(list, ("Authorization: " + token).c_str());
  Set(CURLOPT_URL, url.c_str());
  Set(CURLOPT_HTTPHEADER, list);
  Set(CURLOPT_POSTFIELDS, body.data());
  Set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body.size()));
  Set(CURLOPT_WRITEDATA, &answer.body);
  Set(CURLOPT_ERRORBUFFER, error.data());
  answer.code = curl_easy_perform(curl.get());
  answer.error = error[0] != 0 ? error.data() : curl_easy_strerror(answer.code);
  curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &answer.http_status);
  curl_slist_free_all(list);
  return answer;
}

// ---- the client ---------------------------------------------------------------------------------

EtcdClient::EtcdClient(EtcdOptions options) : options_(std::move(options)) {
  PANDO_CHECK(!options_.endpoints.empty());
  curl_global_init(CURL_GLOBAL_DEFAULT);
  connection_ = std::make_unique<Connection>();
  connection_->SetUp(options_);
}
EtcdClient::EtcdClient(EtcdClient&& other) noexcept = default;
EtcdClient::~EtcdClient() = default;

Result<Json> EtcdClient::Call(const std::string& path, const std::string& what, const Json& body) {
  const std::string text = BodyText(body);
  std::vector<std::string> reasons;
  for (size_t tries = 0; tries < options_.endpoints.size(); ++tries) {
    Result<Json> answer = CallEndpoint(path, text);
    if (answer.ok()) return answer;
    const Status& status = answer.status();
    reasons.push_back(options_.endpoints[endpoint_] + ": " + status.message());
    if (status.code() != StatusCode::kUnavailable)
      return Status(status.code(), fmt::format("cannot {} in etcd: {}", what, reasons.back()));
    endpoint_ = (endpoint_ + 1) % options_.endpoints.size();
  }
  return Unavailable(fmt::format("cannot {} in etcd: {}; check that most of etcd's servers run",
                                 what, Joined(reasons)));
}

Result<Json> EtcdClient::CallEndpoint(const std::string& path, const std::string& body) {
  if (!options_.user.empty() && token_.empty()) PANDO_RETURN_IF_ERROR(LogIn());
  const std::string url = options_.endpoints[endpoint_] + path;
  Result<Json> answer = ReadAnswer(connection_->Post(url, token_, body));
  const bool is_refused = answer.status().message().find(kTokenRefused) != std::string::npos;
  if (token_.empty() || !is_refused) return answer;
  PANDO_RETURN_IF_ERROR(LogIn());  // tokens end after some minutes, and when etcd restarts
  return ReadAnswer(connection_->Post(url, token_, body));
}

Status EtcdClient::LogIn() {
  token_.clear();
  const Json body{{"name", options_.user}, {"password", options_.password}};
  const std::string url = options_.endpoints[endpoint_] + "/v3/auth/authenticate";
  PANDO_ASSIGN_OR_RETURN(const Json answer, ReadAnswer(connection_->Post(url, "", BodyText(body))));
  token_ = Text(answer, "token");
  return Status();
}

Result<EtcdOutcome> EtcdClient::Transact(const EtcdTransaction& transaction) {
  PANDO_ASSIGN_OR_RETURN(const Json answer,
                         Call("/v3/kv/txn", "use " + KeyIn(transaction.success.back()),
                              {{"compare", ToJson(transaction.compares)},
                               {"success", ToJson(transaction.success)},
                               {"failure", ToJson(transaction.failure)}}));
  EtcdOutcome outcome{.has_succeeded = Field(answer, "succeeded") == true,
                      .revision = Number(Field(answer, "header"), "revision")};
  for (const Json& response : Field(answer, "responses")) {
    for (const Json& record : Field(Field(response, "response_range"), "kvs")) {
      outcome.records.push_back({.key = Bytes(record, "key"),
                                 .value = Bytes(record, "value"),
                                 .create_revision = Number(record, "create_revision"),
                                 .mod_revision = Number(record, "mod_revision"),
                                 .lease = Number(record, "lease")});
    }
  }
  return outcome;
}

Result<std::vector<EtcdRecord>> EtcdClient::Get(const std::string& key, const std::string& end) {
  std::vector<EtcdRecord> all;
  std::string next = key;
  while (true) {
    PANDO_ASSIGN_OR_RETURN(EtcdOutcome part,
                           Transact({.success = {EtcdGet{next, end, kRecordsPerGet}}}));
    std::ranges::move(part.records, std::back_inserter(all));
    if (std::ssize(part.records) < kRecordsPerGet) return all;
    next = all.back().key + '\0';
  }
}

Result<EtcdLeaseTime> EtcdClient::Grant(std::chrono::seconds time) {
  PANDO_ASSIGN_OR_RETURN(const Json answer, Call("/v3/lease/grant", "get a lease",
                                                 {{"TTL", std::to_string(time.count())}}));
  return EtcdLeaseTime{Number(answer, "ID"), std::chrono::seconds(Number(answer, "TTL"))};
}

Result<EtcdLeaseTime> EtcdClient::KeepAlive(int64_t lease) {
  PANDO_ASSIGN_OR_RETURN(const Json answer, Call("/v3/lease/keepalive", "keep a lease",
                                                 {{"ID", std::to_string(lease)}}));
  return EtcdLeaseTime{lease, std::chrono::seconds(Number(Field(answer, "result"), "TTL"))};
}

Status EtcdClient::Revoke(int64_t lease) {
  return Call("/v3/lease/revoke", "end a lease", {{"ID", std::to_string(lease)}}).status();
}

}  // namespace pando
