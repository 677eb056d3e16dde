// A part of cuDNN that is only loaded.
