// Ends what x86_64.s or aarch64.s began.
.purgem llvm_function
.popsection
