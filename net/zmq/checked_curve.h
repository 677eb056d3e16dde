// Adds two checks that libzmq 4.3.4 omits in the handshake of CURVE. Without them a false server
// could end each process that dials it, or, even without a key, pose as any server.
//
//  - A WELCOME with a short-term key of low order ends the process (curve_client_tools.hpp:135).
//  - A READY is accepted before a WELCOME, under a key that is not set yet: mostly zeros.
//
// checked_curve.cc defines the functions of libsodium that libzmq calls for this. A program's
// definitions come before a library's, and those of a library loaded with dlopen come before those
// of the libraries that it brings. So libzmq calls ours. embed/exports.map names them.
#pragma once

namespace pando {

// Returns whether a forged handshake was refused since the process began, or since this last
// returned true. Threads: any.
bool TakeForgedHandshake();

}  // namespace pando
