#!/usr/bin/env python3
"""check_symbols.py PROGRAM NM: fails if a protocol core asks the system for more than memory and text.

A core is a pure state machine: no socket, clock, thread, file, environment or chance (docs/architecture.md). What it
may use is listed here; everything else that the program leaves undefined is an error.
"""
import re
import subprocess
import sys

ALLOWED = [
    r"_ZNS[at].*|_ZNKS[at].*|_ZS[a-z].*",  # std:: strings, trees, sorting: see FORBIDDEN for the exceptions
    r"_ZT[VIS].*|_Z(nw|dl|na|da).*",  # virtual tables, type names, new and delete
    r"__cxa_.*|_Unwind_.*|__gxx_personality_v0|__stack_chk_fail|__gmon_start__|__libc_start_main",
    r"_ITM_.*|__dso_handle|__tls_get_addr|__dynamic_cast",
    r"mem(cpy|move|set|cmp|chr)|strlen|strcmp|__mem.*_chk",
    r"aligned_alloc|malloc|free|abort|stderr|fprintf|fwrite|__fprintf_chk",  # PANDO_CHECK prints and stops
    r"pthread_mutex_(lock|unlock)|__pthread_key_create|pthread_once",  # the buffer pool; I/O threads free buffers
    r"cos|sin|pow|exp|sqrt|sqrtf|ceil|floor|lround|fmod|trunc|round|log|modf|frexp|ldexp",
    r"__extendhfsf2|__truncsfhf2",  # fp16 at x86-64-v2
    r"isspace|isdigit|localeconv|snprintf|__snprintf_chk|strto(d|f|l|ll|ul|ull|ld)|__errno_location|__isoc.*",
    r"XXH.*|__libc_single_threaded|__assert_fail",  # hashes; counts of shared pointers; libraries' own checks
    r"_ZNK?3fmt.*",  # texts for people
    r"inet_pton",  # reads an address in a text
    r"fflush|fread|getc|ungetc|feof|ferror",  # nlohmann-json's readers of files, compiled in and unused
]
FORBIDDEN = r"_Z.*(6chrono|6thread|fstream|random_device|10filesystem|18condition_variable)"


def undefined_symbols(program, nm):
    lines = subprocess.run([nm, "-D", "--undefined-only", program], check=True, capture_output=True, text=True)
    return [line.split()[-1].split("@")[0] for line in lines.stdout.splitlines()]


def main():
    program, nm = sys.argv[1], sys.argv[2]
    allowed = re.compile("|".join(f"(?:{pattern})" for pattern in ALLOWED))
    symbols = undefined_symbols(program, nm)
    bad = [s for s in symbols if not allowed.fullmatch(s) or re.search(FORBIDDEN, s)]
    for symbol in bad:
        print(f"{program}: {symbol} has no place in a protocol core")
    print(f"{program}: {len(symbols)} symbols from the system, {len(bad)} of them not allowed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
