// `pando top`: shows a run in a terminal, with two status requests per second. top_screen draws it.
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <memory>
#include <optional>
#include <utility>

#include "cli/commands.h"
#include "cli/watch/top_screen.h"
#include "common/clock.h"
#include "common/exit_codes.h"
#include "net/scheduler_client.h"
#include "node/shutdown_signal.h"
// Included last, since ncurses' macros have short names; functions are used where it has them.
#define NCURSES_NOMACROS
#include <ncurses.h>

namespace pando {
namespace {

constexpr Micros kLookInterval = std::chrono::milliseconds(500);
constexpr Micros kOrderLookInterval = std::chrono::milliseconds(100);  // while an order is open
constexpr Micros kOrderMax = std::chrono::seconds(60);  // as --timeout of pando drain
constexpr short kYellow = 1, kRed = 2;                  // pairs of colors
// The attributes and colors of each TopStyle. A terminal without colors shows the attributes.
constexpr std::array<std::pair<attr_t, short>, 6> kPens{{{A_NORMAL, 0},
                                                         {A_BOLD, 0},
                                                         {A_UNDERLINE, 0},
                                                         {A_REVERSE, 0},
                                                         {A_BOLD, kYellow},
                                                         {A_BOLD, kRed}}};

// Owns the terminal's mode, and restores it at the end. Only one may exist. Threads: one.
class Terminal {
 public:
  Terminal();
  Terminal(const Terminal&) = delete;
  ~Terminal();

  // False: ncurses does not know the terminal, or cannot move its cursor.
  bool is_open() const { return screen_ != nullptr; }
  // REQUIRES for all functions below: is_open().
  TopSize Size();  // follows a change of the window
  void Draw(const std::vector<TopLine>& lines);
  int TakeKey() { return getch(); }  // a key of ncurses; ERR if none waits
  // After Ctrl-Z, leaves the terminal to the shell until this process is in the foreground again.
  void SuspendIfAsked();

 private:
  static void AskToSuspend(int /*signal*/) { is_suspend_asked_ = true; }

  // ncurses has a handler for Ctrl-Z, but ignores the signal while it draws, and such a Ctrl-Z is
  // lost. It leaves a signal alone that has a handler.
  static inline std::atomic<bool> is_suspend_asked_ = false;
  const bool may_suspend_ = std::signal(SIGTSTP, AskToSuspend) != SIG_IGN;  // before newterm
  SCREEN* screen_;
};

// These signals come from a failed PANDO_CHECK or a key. The handler leaves a usable terminal.
constexpr std::array kFatalSignals{SIGABRT, SIGQUIT};

void RestoreAndDie(int signal) {
  endwin();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

Terminal::Terminal() : screen_(newterm(nullptr, stdout, stdin)) {
  if (!may_suspend_) std::signal(SIGTSTP, SIG_IGN);
  if (!is_open()) return;
  if (tigetstr("cup") == nullptr) {  // for example "dumb"
    endwin();
    delscreen(std::exchange(screen_, nullptr));
    return;
  }
  for (const int signal : kFatalSignals) std::signal(signal, RestoreAndDie);
  cbreak();
  noecho();
  keypad(stdscr, TRUE);
  nodelay(stdscr, TRUE);
  curs_set(0);
  start_color();
  use_default_colors();
  init_pair(kYellow, COLOR_YELLOW, -1);
  init_pair(kRed, COLOR_RED, -1);
}

Terminal::~Terminal() {
  if (!is_open()) return;
  endwin();
  for (const int signal : kFatalSignals) std::signal(signal, SIG_DFL);
  delscreen(screen_);
}

TopSize Terminal::Size() {
  winsize window{};
  const bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_row > 0;
  if (is_known && (window.ws_row != LINES || window.ws_col != COLS))
    resizeterm(window.ws_row, window.ws_col);
  return {.rows = static_cast<size_t>(LINES), .columns = static_cast<size_t>(COLS)};
}

void Terminal::Draw(const std::vector<TopLine>& lines) {
  erase();
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto [attributes, colors] = kPens[static_cast<size_t>(lines[i].style)];
    attr_set(attributes, colors, nullptr);
    mvaddstr(static_cast<int>(i), 0, lines[i].text.c_str());
  }
  refresh();
}

void Terminal::SuspendIfAsked() {
  if (!is_suspend_asked_ || !may_suspend_) return;
  endwin();
  std::signal(SIGTSTP, SIG_DFL);
  std::raise(SIGTSTP);
  is_suspend_asked_ = false;
  std::signal(SIGTSTP, AskToSuspend);
  def_shell_mode();  // the user may have changed the mode meanwhile; the next Draw() leaves it
}

// Adds the outcome: a snapshot's replies have the same words before and after it is done.
std::string TextFor(const CommandReply& reply) {
  switch (reply.outcome) {
    case CommandOutcome::kAccepted:
      return reply.text + " (under way)";
    case CommandOutcome::kDone:
      return reply.text + " (done)";
    case CommandOutcome::kRefused:
      return "refused: " + reply.text;
  }
  return reply.text;
}

// Top is the program: it requests the status, sends orders and takes keys. Threads: one.
class Top {
 public:
  Top(const RunAddress& run, Keys keys)
      : run_(run),
        name_(run.run_dir.empty() ? "--join " + run.join : run.run_dir),
        context_(std::move(keys)),
        screen_(name_) {}

  // Connects to the scheduler's endpoint. Never blocks.
  Status Join(std::string endpoint);
  // Runs until the user or a signal ends it, or the terminal is gone.
  void Show(Terminal& terminal, ShutdownSignal& signals);

 private:
  void Look(Micros now);
  void Rejoin();
  void Order(Command command, const std::string& label = "");
  void FollowOrder(Micros now);
  bool OnKey(int key);

  const RunAddress& run_;
  const std::string name_;  // as commands take it
  ZmqContext context_;
  std::string endpoint_;
  std::unique_ptr<SchedulerClient> client_;  // requests the status
  std::unique_ptr<SchedulerClient> order_;   // null: no order is open
  std::string order_label_;                  // printed before its replies
  std::string order_notice_;                 // its last reply, which is repeated
  TopScreen screen_;
  Micros look_at_{0};
  Micros answered_at_ = SteadyNow();
  Micros order_until_{0};
  std::string silence_reason_;
  std::string to_drain_;  // the process in the open question; empty: no question
};

Status Top::Join(std::string endpoint) {
  endpoint_ = std::move(endpoint);
  client_ = std::make_unique<SchedulerClient>(context_, SchedulerClient::Options{});
  return client_->Dial(endpoint_);
}

void Top::Show(Terminal& terminal, ShutdownSignal& signals) {
  const std::array fds{STDIN_FILENO, signals.fd()};
  // A closed terminal is always readable, and has no keys.
  while (signals.Take() == 0 && isatty(STDIN_FILENO) != 0) {
    const Micros now = SteadyNow();
    Look(now);
    FollowOrder(now);
    terminal.Draw(screen_.Draw(terminal.Size()));
    client_->Wait(order_ ? now + kOrderLookInterval : look_at_, fds);  // a signal ends it, too
    terminal.SuspendIfAsked();
    for (int key = terminal.TakeKey(); key != ERR; key = terminal.TakeKey()) {
      if (!OnKey(key)) return;
    }
  }
}

void Top::Look(Micros now) {
  while (std::optional<Message> answer = client_->Poll()) {
    const auto* report = std::get_if<StatusReport>(&*answer);
    if (report != nullptr && screen_.TakeStatus(report->json)) answered_at_ = now;
  }
  const double silent_seconds = std::chrono::duration<double>(now - answered_at_).count();
  if (now >= look_at_) {
    look_at_ = now + kLookInterval;
    if (silent_seconds >= TopScreen::kSilenceShownSeconds) Rejoin();
    if (client_->open_count() == 0) PANDO_CHECK(client_->Ask(StatusRequest{}));
    if (!run_.run_dir.empty()) screen_.TakeRow(ReadNewestRow(RunFolder::Open(run_.run_dir)));
  }
  screen_.TakeSilence(silent_seconds, silence_reason_);
}

// Finds the scheduler again: the run may have ended, or after `pando resume` listens elsewhere.
void Top::Rejoin() {
  silence_reason_ = fmt::format("pando status {} says why", name_);
  if (!run_.run_dir.empty()) {
    const Result<Summary> ended = RunFolder::Open(run_.run_dir).ReadSummary();
    if (ended.ok()) return screen_.TakeEnd(*ended);
  }
  Result<std::string> endpoint = FindEndpoint(run_);
  Status joined = endpoint.status();
  if (endpoint.ok() && *endpoint != endpoint_) joined = Join(*std::move(endpoint));
  if (!joined.ok()) silence_reason_ = joined.message();
}

// Sends an order to the scheduler. FollowOrder takes the reply later.
void Top::Order(Command command, const std::string& label) {
  if (order_) return screen_.TakeNotice("the last order is not carried out yet");
  Status status = FindRunKeys(run_, KeyRole::kAdmin).status();
  auto order = std::make_unique<SchedulerClient>(context_, SchedulerClient::Options{});
  if (status.ok()) status = order->Dial(endpoint_);
  if (!status.ok()) return screen_.TakeNotice(status.message());
  PANDO_CHECK(order->Ask(std::move(command)));
  order_ = std::move(order);
  order_label_ = label;
  order_notice_.clear();
  order_until_ = SteadyNow() + kOrderMax;
  screen_.TakeNotice("the order is on its way");
}

void Top::FollowOrder(Micros now) {
  if (!order_) return;
  bool is_over = now >= order_until_;
  if (is_over) screen_.TakeNotice("no reply yet; the scheduler may still carry the order out");
  while (std::optional<Message> answer = order_->Poll()) {
    const auto* reply = std::get_if<CommandReply>(&*answer);
    if (reply == nullptr) continue;
    const std::string notice = order_label_ + TextFor(*reply);
    if (std::exchange(order_notice_, notice) != notice) screen_.TakeNotice(notice);
    is_over = is_over || reply->outcome != CommandOutcome::kAccepted;
  }
  if (is_over) order_.reset();
}

// Returns whether the program continues.
bool Top::OnKey(int key) {
  if (key == KEY_RESIZE) return true;
  const std::string to_drain = std::exchange(to_drain_, "");
  if (!to_drain.empty()) {
    screen_.TakeNotice("");
    if (key == 'y') Order({.kind = CommandKind::kDrain, .target = to_drain});
    return true;
  }
  if (key == KEY_UP) screen_.MoveChoice(-1);
  if (key == KEY_DOWN) screen_.MoveChoice(1);
  if (key == 's') Order({.kind = CommandKind::kSnapshot}, "snapshot: ");
  if (key == 'd') to_drain_ = screen_.chosen();
  if (!to_drain_.empty()) screen_.TakeNotice(fmt::format("drain {}? y or n", to_drain_));
  return key != 'q';
}

Result<int> ShowTop(const RunAddress& run) {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
    return InvalidArgument(
        "top draws on a terminal, and its input or output is none; pando status prints the same "
        "once");
  }
  PANDO_ASSIGN_OR_RETURN(std::string endpoint, FindEndpoint(run));
  PANDO_ASSIGN_OR_RETURN(Keys keys, FindRunKeys(run, KeyRole::kReader));
  ShutdownSignal signals;  // before the context's threads
  Top top(run, std::move(keys));
  PANDO_RETURN_IF_ERROR(top.Join(std::move(endpoint)));
  Terminal terminal;
  if (!terminal.is_open())
    return InvalidArgument(
        "ncurses does not know this terminal, or cannot draw on it: set TERM, to xterm for "
        "example");
  const TopSize size = terminal.Size();
  if (!TopScreen::IsEnough(size)) return InvalidArgument(TopScreen::SizeText(size));
  top.Show(terminal, signals);
  return kExitCompleted;
}

}  // namespace

Subcommand AddTopCommand(CLI::App& app) {
  auto run = std::make_shared<RunAddress>();
  CLI::App& command = DeclareCommand(
      app, "top", "Shows a run in the terminal while it goes on.",
      "Keys: the arrows choose a process, d drains it, s makes a snapshot, q ends pando top.\n"
      "The run is not affected.\n\n"
      "Examples:\n  pando top runs/first\n  pando top --join tcp://127.0.0.1:7070\n");
  AddRunAddress(command, run.get());
  return [run] { return ShowTop(*run); };
}

}  // namespace pando
