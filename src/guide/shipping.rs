//! Kernels without a compiler: archives of compiled kernels, and the cache on disk.
//!
//! A kernel is compiled at its first launch, by LLVM and then by the driver. Most programs never notice: what was compiled is
//! kept on disk, and the next run finds it. A program that shall run where there is no LLVM, or start without compiling
//! anything even the first time, takes its kernels with it.
//!
//! # The cache
//!
//! It is on without being asked for. `RUST_LOG=kernel_runtime=debug` says for each variant of a kernel whether it was found or
//! compiled.
//!
//! | variable | value | meaning |
//! |---|---|---|
//! | `TILEWRIGHT_CACHE` | a folder, or `off` | where compiled kernels are kept; without it `tilewright` in the user's folder for caches, such as `~/.cache` |
//! | `TILEWRIGHT_CACHE_SIZE` | `500M`, `2G` | about how much of them, without it `1G`; what was used longest ago goes first |
//! | `TILEWRIGHT_RECORD` | a file | an archive to which the variants of all launches on GPUs are added |
//!
//! An entry is found by everything that its code depends on: the kernel (without the places where its lines stand, so that a
//! comment above it compiles nothing anew), constexprs, dtypes, what is known of the arguments, options, the target, the version
//! of Tilewright, and LLVM. Any number of processes may use a folder at the same time, and be killed; a file that is damaged
//! counts as missing. If the folder cannot be used (it cannot be written, the disk is full, everybody may write it), that is
//! logged once, and there is no cache. It may be removed at any time.
//!
//! The driver's own cache (`~/.nv/ComputeCache`) keeps what its compiler makes of the PTX, which is the larger part of what a
//! first launch takes: containers should keep both.
//!
//! # Shipping kernels with a program
//!
//! 1. **Fill an archive**, by a run on a machine with a GPU,
//!
//!    ```text
//!    TILEWRIGHT_RECORD=kernels.twa cargo test
//!    ```
//!
//!    or by a list, which needs no GPU: in a program of its own, or in the `build.rs` of a crate whose build-dependencies have
//!    the kernels and Tilewright with the feature `jit`.
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
//! A launch runs the variant that was compiled for just its constexprs, dtypes, options and facts about arguments. In a program
//! that cannot compile, one that takes less for granted serves instead: the general variant above serves every launch of
//! `add::<f32, 1024>`, and is slower where it cannot use accesses of 16 bytes. If nothing serves, the launch is
//! [`Error::MissingCode`](crate::Error::MissingCode), which has the line that is missing in the list:
//!
//! ```text
//! kernel `add` has no compiled code for this launch, and this program cannot compile it: it needs add<f32>(2048) for sm_90a:
//! [f32 @16 %16, f32 @16 %16, mut f32 @16 %16, i32], and its archives have 4 other variants of this kernel; record a run of a
//! program that can (TILEWRIGHT_RECORD=FILE), or add to what builds the archive:
//! archive.add(AddConsts { BLOCK: 2048 }.request::<f32>().assume(AddAssumed { n: AssumedScalar::Unknown, ..Default::default() }), &[Target::sm_90a()])?;
//! ```
//!
//! An archive serves programs with the version of Tilewright that made it; others refuse it with an error, so make it anew
//! when you update. It holds PTX, which the driver compiles for the GPU at hand, with whatever version it has.
//!
//! # Looking into an archive
//!
//! In a checkout of Tilewright's repository,
//!
//! ```text
//! cargo run -p tilewright-inspect -- kernels.twa                 # the variants
//! cargo run -p tilewright-inspect -- kernels.twa 3 ptx           # a stage of one: bound, each pass, placed, llvm, ptx, report
//! cargo run -p tilewright-inspect -- kernels.twa 3 passes        # what each pass changed
//! cargo run -p tilewright-inspect -- diff old.twa 3 new.twa 3 ptx
//! cargo run -p tilewright-inspect -- kernels.twa --html kernels.html
//! ```
//!
//! Files of the cache are archives of one variant each, so this works for them too.
