//! Kernels without a compiler: archives of compiled kernels, and the cache on disk.
//!
//! A kernel is compiled at its first launch, by LLVM and then by the driver. Most programs never notice: what was compiled is
//! kept on disk, and the next run finds it. A program that shall run where there is no LLVM, or start without compiling
//! anything even the first time, takes its kernels with it.
//!
//! # The cache
//!
//! It is on without being asked for. What it does is written to the crate `log`, for which the program installs a logger, such
//! as `env_logger::init()`. With that, `RUST_LOG=kernel_runtime=debug` says for each variant of a kernel whether it was found
//! or compiled.
//!
//! | variable | value | meaning |
//! |---|---|---|
//! | `TILEWRIGHT_CACHE` | a folder, or `off` | where compiled kernels are kept; without it `tilewright` in the user's folder for caches, such as `~/.cache` |
//! | `TILEWRIGHT_CACHE_SIZE` | `500M`, `2G` | about how much of them, without it `1G`; what was used longest ago goes first |
//! | `TILEWRIGHT_RECORD` | a file | an archive to which the variants of all launches on GPUs are added |
//! | `TILEWRIGHT_PTXAS` | a file, or `off` | NVIDIA's assembler, for [machine code](self#machine-code); without it one is looked for where it is needed |
//!
//! An entry is found by everything that its code depends on: the kernel (without the places where its lines stand, so that a
//! comment above it compiles nothing anew), constexprs, dtypes, what is known of the arguments, options, the target, the version
//! of Tilewright, and LLVM. Any number of processes may use a folder at the same time, and be killed; a file that is damaged
//! counts as missing. If the folder cannot be used (it cannot be written, the disk is full, others may write it), that is
//! logged once, and there is no cache. It may be removed at any time.
//!
//! A launch never fails for want of the cache, nor of the file that `TILEWRIGHT_RECORD` names: if that cannot be written, or is
//! something else than an archive, one line on the standard error says so.
//!
//! The driver's own cache (`~/.nv/ComputeCache`) keeps what its compiler makes of the PTX, which is the larger part of what a
//! first launch takes: containers should keep both. Where the driver keeps nothing (`CUDA_CACHE_DISABLE=1`, or its folder is
//! gone) and Tilewright's cache is there, the second run puts the machine code of kernels without shared memory into it.
//!
//! What a first launch takes in a new process, in ms from the call to its end, the context made (H100, driver 580.159.04,
//! example `09_shipping`; medians of nine processes, `benches/results/warm.csv`):
//!
//! | kernels come from | add | softmax | persistent matmul |
//! |---|--:|--:|--:|
//! | the compiler, and nothing is kept | 28.9 | 21.2 | 281 |
//! | the cache, and the driver's | 0.45 | 0.31 | 0.52 |
//! | the cache, and the driver keeps nothing | 0.43 | 22.4 | 246 |
//! | an archive of PTX, and the driver's cache | 0.43 | 0.30 | 0.48 |
//! | an archive with machine code, no cache at all | 0.34 | 0.22 | 0.32 |
//!
//! A cache that is still empty costs nothing that could be measured: in 30 pairs of processes with and without, the medians of
//! the ratios are 0.995, 0.989 and 0.994.
//!
//! # Shipping kernels with a program
//!
//! 1. **Fill an archive**, by a run on a machine with a GPU,
//!
//!    ```text
//!    TILEWRIGHT_RECORD=kernels.twa cargo test
//!    ```
//!
//!    or by a list, which needs no GPU: in a program of its own, or in a [`build.rs`](self#a-list-in-buildrs).
//!
//!    ```
//!    use tilewright::archive::{self, ArchiveBuilder};
//!    use tilewright::launch::{AssumedBuffer, AssumedScalar};
//!    use tilewright::prelude::*;
//!
//!    /// out[i] = x[i] + y[i]
//!    #[kernel]
//!    pub fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
//!        let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
//!        let mask = offsets < n;
//!        store(out + offsets, load(x + offsets, mask = mask) + load(y + offsets, mask = mask), mask = mask);
//!    }
//!
//!    fn main() -> Result<(), Error> {
//!        let mut archive = ArchiveBuilder::new();
//!        let add = || AddConsts { BLOCK: 1024 }.request::<f32>();
//!        // For aligned buffers and lengths that are multiples of 16, ..
//!        archive.add(add(), &[Target::sm_80(), Target::sm_90a()])?;
//!        // .. and for any others.
//!        let unknown = AssumedBuffer::UNKNOWN;
//!        let any = AddAssumed { x: unknown, y: unknown, out: unknown, n: AssumedScalar::Unknown };
//!        archive.add(add().assume(any), &[Target::sm_80(), Target::sm_90a()])?;
//!        // Of each, one for launches that are known to stay inside their buffers, and one that checks every access.
//!        assert_eq!(archive.variants().count(), 8);
//!        # let path = std::env::temp_dir().join(format!("tilewright-guide-{}.twa", std::process::id()));
//!        # let kernels = &path;
//!        # /*
//!        let kernels = "kernels.twa";
//!        # */
//!        archive.write(kernels)?;
//!
//!        // The program that ships it says `tilewright::embed_archive!("kernels.twa")?`, or reads the file:
//!        assert_eq!(archive::load(kernels)?, 8);
//!        # let _ = std::fs::remove_file(path);
//!        Ok(())
//!    }
//!    ```
//!
//! 2. **Embed it**: `tilewright::embed_archive!("kernels.twa")?` at the start of `main`. With
//!    `tilewright = { version = "..", default-features = false }` the program has no code generator, looks for no LLVM, and
//!    needs the driver alone.
//!
//! ## A list in `build.rs`
//!
//! The kernels are in a crate of their own, on which the program and its `build.rs` depend. `build.rs` alone has the code
//! generator: all others say `default-features = false`, the crate of the kernels too, as what one of them asks for the
//! program gets.
//!
//! ```toml
//! # kernels/Cargo.toml
//! [dependencies]
//! tilewright = { version = "..", default-features = false }
//!
//! # app/Cargo.toml
//! [dependencies]
//! tilewright = { version = "..", default-features = false }
//! kernels = { path = "../kernels" }
//!
//! [build-dependencies]
//! tilewright = { version = "..", default-features = false, features = ["jit"] }
//! kernels = { path = "../kernels" }
//! ```
//!
//! ```no_run
//! // app/build.rs
//! use tilewright::archive::ArchiveBuilder;
//! use tilewright::prelude::*;
//! # /*
//! use kernels::AddConsts;
//! # */
//! # #[kernel]
//! # fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
//! #     let at = program_id(0) * BLOCK + arange(0, BLOCK);
//! #     store(out + at, load(x + at, mask = at < n) + load(y + at, mask = at < n), mask = at < n);
//! # }
//!
//! fn main() -> Result<(), Error> {
//!     let mut archive = ArchiveBuilder::new();
//!     archive.add(AddConsts { BLOCK: 1024 }.request::<f32>(), &[Target::sm_80(), Target::sm_90a()])?;
//!     let folder = std::env::var_os("OUT_DIR").expect("cargo says where");
//!     archive.write(std::path::Path::new(&folder).join("kernels.twa"))
//! }
//! ```
//!
//! The program embeds it by `tilewright::embed_archive!(concat!(env!("OUT_DIR"), "/kernels.twa"))?`.
//!
//! # What a launch finds
//!
//! A launch runs the variant that was compiled for just its constexprs, dtypes, options and facts about arguments. In a program
//! that cannot compile, one that takes less for granted serves instead: the general variant above serves every launch of
//! `add::<f32, 1024>`, and is slower where it cannot use accesses of 16 bytes. If nothing serves, the launch is
//! [`Error::MissingCode`](crate::Error::MissingCode), which has the line that is missing in the list:
//!
//! ```text
//! kernel `add` has no compiled code for this launch: it needs add<f32>(2048) for sm_90a: [f32 @16 %16, f32 @16 %16,
//! mut f32 @16 %16, i32], and its archives have 4 other variants of this kernel; this program cannot compile it; record a run
//! of a program that compiles it (TILEWRIGHT_RECORD=FILE), or add to what builds the archive:
//! archive.add(AddConsts { BLOCK: 2048 }.request::<f32>().assume(AddAssumed { n: tilewright::launch::AssumedScalar::Unknown,
//! ..Default::default() }), &[Target::sm_90a()])?;
//! ```
//!
//! A kernel that makes tensors itself (`tensor_desc`) has each variant twice: for tensors that the hardware copies, and for
//! those that it cannot copy, such as rows that are no multiple of 16 bytes apart. One line adds both.
//!
//! `call.shipped(Target::sm_90a())` says what the program's archives have for a launch, or is that error: so a test without a
//! GPU, and with a compiler, sees that the archive has all that the program launches.
//!
//! An archive serves programs with the version of Tilewright that made it; others refuse it with an error, so make it anew
//! when you update. It holds PTX, which the driver compiles for the GPU at hand, with whatever version it has, and can hold
//! machine code.
//!
//! # Machine code
//!
//! The driver takes 8 to 170 ms to compile a kernel, the first time on a machine and wherever its cache is lost. An archive
//! that is built where there is a `ptxas`, of the CUDA toolkit or of the Python package `nvidia-cuda-nvcc`, can have the
//! machine code beside the PTX; no GPU is needed for that:
//!
//! ```no_run
//! # fn main() -> Result<(), tilewright::Error> {
//! use tilewright::archive::{ArchiveBuilder, Ptxas};
//!
//! let mut archive = ArchiveBuilder::new();
//! archive.machine_code(Ptxas::find()?); // of all that is added from here on:
//! archive.add_archive("recorded.twa")?;
//! archive.write("kernels.twa")
//! # }
//! ```
//!
//! A launch loads it on GPUs of just its target's compute capability (8.0 for `sm_80`, 9.0 for `sm_90a`). Another GPU, or a
//! driver that does not know the assembler's release of CUDA, has the PTX compiled, as if there were no machine code.
//!
//! Is it the code that the driver would make? An assembler of the release of CUDA that the driver supports (`nvidia-smi` says
//! which) is the same compiler: of the three kernels above, ptxas 13.0.88 makes the very instructions that driver 580.159.04
//! (CUDA 13.0) keeps in its cache. Another release is another version of it, which may choose and order instructions otherwise.
//! The driver's linker, which gives machine code back too, compiles as for several files: it ignores how a kernel deals out
//! registers to its warps, and does not know where shared memory begins. So the cache on disk has its code of kernels that do
//! neither.
//!
//! A tuner runs an assembler on all cores too, if it finds one of the driver's release, or `TILEWRIGHT_PTXAS` names one: the
//! driver's compiler works for one thread at a time.
//!
//! # How large the program is
//!
//! Without the feature `jit`, what is left beside the launches is the interpreter for the CPU. Where size matters,
//! this profile trades some of the host's speed, that of the interpreter above all, for it; what runs on a GPU stays as it is:
//!
//! ```toml
//! [profile.release]
//! lto = true
//! codegen-units = 1
//! opt-level = "s"
//! strip = true
//! ```
//!
//! Example `01_vector_add` has 4.5 MB without it, and 2.25 MB with it; `09_shipping` 4.7 and 2.4 MB. The archive of the latter,
//! three kernels for two targets in 12 variants with their machine code, has 0.16 MB.
//! (x86-64 Linux, Rust 1.95; `scripts/sizes` measures it.) In a workspace, features of all packages that are built at once are
//! united: build the program alone (`cargo build -p PROGRAM`), else another package that wants the compiler brings it in.
//!
//! # Looking into an archive
//!
//! In a checkout of Tilewright's repository,
//!
//! ```text
//! cargo run -p tilewright-inspect -- kernels.twa                 # the variants
//! cargo run -p tilewright-inspect -- kernels.twa 3               # one: parameters, conditions, registers, accesses
//! cargo run -p tilewright-inspect -- kernels.twa 3 ptx           # a stage: bound, each pass, placed, llvm, ptx, sass, report
//! cargo run -p tilewright-inspect -- kernels.twa 3 line:9        # what line 9 of the source becomes in each stage
//! cargo run -p tilewright-inspect -- kernels.twa 3 shared        # accesses to shared memory, with bank conflicts
//! cargo run -p tilewright-inspect -- diff old.twa new.twa        # which variants differ, and in which stages
//! cargo run -p tilewright-inspect -- diff old.twa 3 new.twa 3 sass
//! cargo run -p tilewright-inspect -- kernels.twa --html kernels.html
//! ```
//!
//! The page has the stages side by side, source, tile IR with layouts, LLVM IR, PTX and machine code: pointing at a line marks
//! what belongs to it in all of them. Below are layouts drawn, accesses, and what each pass has changed. Called without
//! arguments, the program lists all that it shows.
//!
//! Machine code is shown by NVIDIA's `nvdisasm`, of the CUDA toolkit or of the Python package `nvidia-cuda-nvdisasm`; where an
//! archive has none, `ptxas` makes it. They are found on the path and in the toolkit, or beside what `TILEWRIGHT_PTXAS` names.
//! Without them the rest is shown.
//!
//! Files of the cache are archives of one variant each, so this works for them too; those with machine code say so.
