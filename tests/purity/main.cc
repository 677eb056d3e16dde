// Each protocol core is linked whole into a separate program, without ZeroMQ, Cap'n Proto and
// CUDA; check_symbols.py then looks at what the program wants from the system.
int main() { return 0; }
