// Checks that libzmq 4.3.4 omits in the handshake of CURVE: a false server, which needs no key for
// the second, could abort each process that dials it, and could pose as any server.
//
//  - A WELCOME with a short-term key of low order ends the process (curve_client_tools.hpp:135).
//  - A READY is accepted before a WELCOME, under a key that is not set yet: mostly zeros.
//
// checked_curve.cc defines the functions of libsodium with which libzmq does this. A program's
// definitions come before a library's, and those of a library that is loaded with dlopen before
// those of the libraries that it brings: so libzmq calls ours. embed/exports.map names them.
#pragma once

namespace pando {

// Whether a forged handshake was refused since the process began, or since this last returned
// true.  Threads: any.
bool TakeForgedHandshake();

}  // namespace pando
