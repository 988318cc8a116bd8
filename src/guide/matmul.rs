//! A matrix product in ten steps: from the obvious kernel to one that is as fast as the vendor's library.
//!
//! Each rung of this ladder changes one thing, in the kernel or in the options of its launch. For each you see the
//! kernel, what the change makes of the generated code, and why that matters on a GPU. You know CUDA or Triton; what
//! you need of Tilewright is explained on the way, and all of it stands in the description of
//! [`#[kernel]`](macro@crate::kernel).
//!
//! # What each rung gains
//!
//! `c = a @ b` with f16 matrices, sums in f32, on one NVIDIA H100 80GB HBM3, in TFLOP/s. Everybody ran in one process,
//! in turns, on normally distributed numbers, with the L2 cache flushed before each run; every rung gave exact sums of
//! small integers first. `gain` is over the rung before at the same size, `of cuBLAS` is relative to what cuBLAS chooses
//! by itself for the largest product.
//!
#![doc = include_str!("matmul/rates.md")]
//!
//! The numbers are those of one machine on one day: large products draw as much power as the GPU may have, so that all
//! contenders run at clocks that depend on the data and the weather. Repeat them by
//! `cargo bench -p tilewright-bench --bench matmul -- --ladder`.
//!
//! # Rung 1: multiply and sum
//!
//! The definition of the product, in the language of tiles: a program computes a tile of `c`, goes along `k` in steps
//! of `BK`, multiplies every row of its piece of `a` with every column of its piece of `b`, and sums.
//!
//! ```
#![doc = include_str!("matmul/sums.rs")]
//!
//! fn main() -> Result<(), Error> {
//!     // Sizes that no tile divides: masks keep everything inside.
//!     let (m, n, k) = (37usize, 50usize, 29usize);
//!     let device = Device::cpu(); // or `Device::best()?`
//!     let integers = |len: usize| (0..len).map(|at| f16::from_f32((at % 5) as f32 - 2.0)).collect::<Vec<f16>>();
//!     let (x, y) = (integers(m * k), integers(k * n));
//!     let (a, b) = (device.upload(&x)?, device.upload(&y)?);
//!     let mut c = device.zeros::<f16>(m * n)?;
//!     sums::<_, 16, 32, 16>(&a, &b, &mut c, m as i32, n as i32, k as i32)
//!         .grid((m.div_ceil(16), n.div_ceil(32)))
//!         .num_warps(4)
//!         .launch(&device)?;
//!     for (at, got) in c.to_vec()?.into_iter().enumerate() {
//!         let want: f32 = (0..k).map(|t| x[at / n * k + t].to_f32() * y[t * n + at % n].to_f32()).sum();
//!         assert_eq!(got.to_f32(), want);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! What is wrong with it? The product of the broadcast tiles has `BM * BK * BN` elements, which all exist: in
//! registers, if they are few, and for that reason the tile is small. A small tile needs much memory for little
//! arithmetic: a program reads `BM + BN` numbers for `BM * BN` multiplications, 3 numbers for every 32.
//! And the sum along `BK` goes across threads, by shuffles and through shared memory, once in each step.
//!
//! # Rung 2: `dot`
//!
//! `dot` says what is meant. Here its factors are f32 and `precision = ieee` asks for f32 arithmetic, so that nothing
//! but the word changes:
//!
//! ```
#![doc = include_str!("matmul/scalar.rs")]
//! # fn main() {}
//! ```
//!
//! The compiler puts both factors into shared memory, and gives each thread a block of the result, for which it reads a
//! few numbers of each factor and multiplies each with each. No sum crosses threads any more, and the tile can be
//! large: 128 × 128 by 8 warps, 64 sums in the registers of each thread. The loop is made of `fma` instructions, as
//! many as the product needs. There is nothing left to gain but another instruction.
//!
//! # Rung 3: tensor cores
//!
//! Without the conversions, `dot` multiplies f16, which tensor cores do: with two warps by `mma.sync.m16n8k16`, an
//! instruction of one warp that every GPU from Ampere on has. Its factors are in registers, in a layout of its own, in
//! which `ldmatrix` reads them from shared memory, where they lie permuted ("swizzled") so that no two threads of a
//! read meet in a bank.
//!
//! ```
#![doc = include_str!("matmul/plain.rs")]
//!
//! fn main() -> Result<(), Error> {
//!     let size = 256;
//!     let device = Device::cpu();
//!     let (a, b) = (device.zeros::<f16>(size * size)?, device.zeros::<f16>(size * size)?);
//!     let mut c = device.zeros::<f16>(size * size)?;
//!     // Rungs 3 and 4 are this kernel: their stages, and what is new in their code.
//!     for (stages, new) in [(1, "mma.sync.aligned.m16n8k16"), (4, "cp.async.cg.shared.global")] {
//!         let size = size as i32;
//!         let call = PlainConsts { BM: 64, BN: 64, BK: 64 }.call(&a, &b, &mut c, size, size, size);
//!         // No GPU is needed to look at the code for one.
//!         let compiled = call.num_warps(2).num_stages(stages).compile(Target::sm_90a());
//! #       if let Err(Error::Llvm { .. } | Error::Unsupported { .. }) = compiled { return Ok(()) }
//!         let compiled = compiled?;
//!         assert!(compiled.ptx().contains(new), "{}", compiled.report());
//!     }
//!     Ok(())
//! }
//! ```
//!
//! `.num_stages(1)` keeps the loop as it is written: load, wait for the loads, store them to shared memory, wait for
//! each other, multiply. Tensor cores are idle for most of that time; only other programs on the same multiprocessor
//! fill the gaps.
//!
//! # Rung 4: loads ahead
//!
//! `.num_stages(4)`, and nothing else. (The default of `num_stages` is 3, and `#[stages(4)]` on the loop says the same
//! in the kernel.) Shared memory now has four slots: while one is multiplied, the loads of the next three iterations are
//! in flight. They use `cp.async`, which writes to shared memory without going through registers and is waited for only
//! when its slot is needed. The report says so:
//!
//! ```text
//! loop pipelined with 4 stages of 16384 bytes: `a` by cp.async, `b` by cp.async
//! ```
//!
//! Masks do not change: elements beyond the edge become zeros in shared memory.
//!
//! Latency is hidden now, and what shows is the next limit: bandwidth. Matrices of 4096 rows are still in the L2 cache
//! when they are read again. Those of 8192 rows are not, and there this rung alone gains nothing.
//!
//! # Rung 5: grouped order
//!
//! Programs start in the order of their numbers, a few hundred at a time. With an axis of the grid for rows and one for
//! columns, those that run together are a few columns of tiles: they share `b` and read all of `a`. If they form a block
//! that is about as high as it is wide, they need far fewer different rows and columns, and the L2 cache has them. So
//! the grid has one axis, and the kernel divides the number of a program by itself:
//!
//! ```
#![doc = include_str!("matmul/grouped.rs")]
//!
//! fn main() -> Result<(), Error> {
//!     let size = 256;
//!     let device = Device::cpu();
//!     let (a, b) = (device.zeros::<f16>(size * size)?, device.zeros::<f16>(size * size)?);
//!     let mut c = device.zeros::<f16>(size * size)?;
//!     // Rungs 5 to 7 are this kernel: their tiles, warps and stages, and the instruction that multiplies.
//!     for ([bm, bn, bk], warps, stages, instruction) in [
//!         ([64, 64, 64], 2, 4, "mma.sync.aligned.m16n8k16"),
//!         ([64, 64, 64], 4, 4, "wgmma.mma_async.sync.aligned.m64n64k16"),
//!         ([128, 256, 64], 8, 4, "wgmma.mma_async.sync.aligned.m64n256k16"),
//!     ] {
//!         let size = size as i32;
//!         let consts = GroupedConsts { BM: bm, BN: bn, BK: bk, GROUP: 8 };
//!         let call = consts.call(&a, &b, &mut c, size, size, size).num_warps(warps).num_stages(stages);
//!         let compiled = call.compile(Target::sm_90a());
//! #       if let Err(Error::Llvm { .. } | Error::Unsupported { .. }) = compiled { return Ok(()) }
//!         let compiled = compiled?;
//!         assert!(compiled.ptx().contains(instruction), "{}", compiled.report());
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Nothing changes in the loop, and while all of `a` and `b` is in the cache, nothing in the time.
//!
//! # Rung 6: a warp group
//!
//! `.num_warps(4)`, and nothing else: four warps are a warp group, which Hopper's `wgmma` is made for. The instruction
//! multiplies 64 rows at once and takes both factors from shared memory, so `ldmatrix` and the registers for factors
//! are gone from the code: a thread keeps its sums and little more. It is asynchronous too: products stay in flight
//! while the next iteration's copies are issued, and the loop waits for a product one iteration later.
//!
//! By itself this gains little: with a tile of 64 × 64 the L2 cache cannot deliver factors faster. What it gives is
//! room, in registers and in time, for the next rung.
//!
//! The layout that `wgmma` wants in shared memory, the fences and the waits are the compiler's. It asks for tiles of 64
//! rows or more and a multiple of four warps; where you have less, you get `mma.sync`.
//!
//! # Rung 7: a large tile
//!
//! 128 × 256 instead of 64 × 64, by two warp groups: `BM * BN / (BM + BN)` multiplications per number read go from 32 to
//! 85. That is what reading from the L2 cache and from shared memory is divided by. One `wgmma` now has 256 columns,
//! and 128 of each thread's registers are sums. Four slots take 192 KiB now, so there is room for one program on a
//! multiprocessor, which the stages make up for.
//!
//! # Rung 8: tensor descriptors
//!
//! A tensor descriptor is a buffer with its shape, made on the host: `TensorDesc::new(&a, [m, k])?`. The kernel names
//! blocks by where they begin. There are no masks, since what is outside reads as zero and is not written, and no
//! addresses, which the hardware computes.
//!
//! ```
#![doc = include_str!("matmul/blocks.rs")]
//! # fn main() -> Result<(), Error> {
//! #     let size = 256;
//! #     let device = Device::cpu();
//! #     let (a, b) = (device.zeros::<f16>(size * size)?, device.zeros::<f16>(size * size)?);
//! #     let mut c = device.zeros::<f16>(size * size)?;
//! #     let (a, b) = (TensorDesc::new(&a, [size, size])?, TensorDesc::new(&b, [size, size])?);
//! #     let mut c = TensorDescMut::new(&mut c, [size, size])?;
//! #     let call = BlocksConsts { BM: 128, BN: 256, BK: 64, GROUP: 8 }.call(&a, &b, &mut c, 256, 256, 256);
//! #     let compiled = call.num_warps(8).num_stages(4).compile(Target::sm_90a());
//! #     if let Err(Error::Llvm { .. } | Error::Unsupported { .. }) = compiled { return Ok(()) }
//! #     let compiled = compiled?;
//! #     assert!(compiled.ptx().contains("cp.async.bulk.tensor"), "{}", compiled.report());
//! #     assert!(compiled.report().contains("8 warps"), "{}", compiled.report());
//! #     assert!(compiled.report().contains("loop pipelined with 4 stages"), "{}", compiled.report());
//! #     Ok(())
//! # }
//! ```
//!
//! On Hopper one thread asks for a whole block, by `cp.async.bulk.tensor`; it arrives swizzled, and a barrier in shared
//! memory counts its bytes. The threads that multiply compute no addresses and no masks any more, and wait for nothing
//! but that barrier.
//!
//! ```text
//! kernel blocks for sm_90a: 8 warps
//!   load `a`: 1 x 16384 bytes by tensor copy
//!   load `b`: 4 x 8192 bytes by tensor copy
//!   loop pipelined with 4 stages of 49152 bytes: `a` by tensor copy, `b` by tensor copy
//! ```
//!
//! The result goes the same way back, through shared memory by tensor copies. On older GPUs, and on the CPU, the same
//! kernel runs with masks.
//!
//! # Rung 9: programs that stay
//!
//! A program of rung 8 begins with empty slots and ends with a store that nothing overlaps. So start as many programs as
//! there are multiprocessors (`.grid(tiles.min(device.multiprocessor_count()))`) and let each take tile after tile:
//!
//! ```
#![doc = include_str!("matmul/persistent.rs")]
//! # fn main() -> Result<(), Error> {
//! #     let (m, n, k) = (37usize, 48usize, 32usize);
//! #     let device = Device::cpu();
//! #     let integers = |len: usize| (0..len).map(|at| f16::from_f32((at % 5) as f32 - 2.0)).collect::<Vec<f16>>();
//! #     let (x, y) = (integers(m * k), integers(k * n));
//! #     let (a, b) = (device.upload(&x)?, device.upload(&y)?);
//! #     let mut c = device.zeros::<f16>(m * n)?;
//! #     {
//! #         let (a, b) = (TensorDesc::new(&a, [m, k])?, TensorDesc::new(&b, [k, n])?);
//! #         let mut c = TensorDescMut::new(&mut c, [m, n])?;
//! #         persistent::<_, 16, 32, 16, 8>(&a, &b, &mut c, m as i32, n as i32, k as i32).grid(4).launch(&device)?;
//! #     }
//! #     for (at, got) in c.to_vec()?.into_iter().enumerate() {
//! #         let want: f32 = (0..k).map(|t| x[at / n * k + t].to_f32() * y[t * n + at % n].to_f32()).sum();
//! #         assert_eq!(got.to_f32(), want);
//! #     }
//! #     Ok(())
//! # }
//! ```
//!
//! Now there is something to fetch while a tile is stored, so the compiler divides the program: four more warps fetch,
//! the others multiply and store, and each side waits for the other only when the ring of slots is full or empty. The ring
//! runs on from one tile to the next: while some warps store a tile, the fetching ones bring the factors of the next.
//!
//! ```text
//! kernel persistent for sm_90a: 12 warps
//!   loop fed by warps of their own through 4 slots of 49152 bytes, one product in flight
//! ```
//!
//! The result leaves in pieces of 64 columns: each warp group stores the rows that it has computed and waits for nobody
//! else. `#[warp_specialize]` asks for all this. You get it without asking where all factors come by descriptors, and
//! no second program has room on the multiprocessor; but with the mark the report says why if it is not possible. The
//! shorter `k` is, the more a store weighs, and the more this rung gains.
//!
//! # Rung 10: two teams in ping-pong
//!
//! One thing is left that nothing overlaps. Both warp groups of rung 9 work on the same tile, so they come to its end
//! together: the factors of the next tile lie there, and tensor cores wait until 128 × 256 sums are converted and stored.
//! If each group had a tile of its own and they began half a tile apart, one could multiply while the other stores.
//!
//! You get that by launching the same kernel with other options: tiles of 128 × 128, which are as much as four warps can
//! hold, and `.num_warps(4)`. The slots are smaller now, so `.num_stages(6)` fits.
//!
//! ```
//! # mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/matmul/persistent.rs")); }
//! # use kernel::PersistentConsts;
//! # use tilewright::prelude::*;
//! # fn main() -> Result<(), Error> {
//! #     let size = 256;
//! #     let device = Device::cpu();
//! #     let (a, b) = (device.zeros::<f16>(size * size)?, device.zeros::<f16>(size * size)?);
//! #     let mut c = device.zeros::<f16>(size * size)?;
//! #     let (a, b) = (TensorDesc::new(&a, [size, size])?, TensorDesc::new(&b, [size, size])?);
//! #     let mut c = TensorDescMut::new(&mut c, [size, size])?;
//! let consts = PersistentConsts { BM: 128, BN: 128, BK: 64, GROUP: 8 };
//! let call = consts.call(&a, &b, &mut c, 256, 256, 256);
//! let compiled = call.num_warps(4).num_stages(6).compile(Target::sm_90a());
//! # if let Err(Error::Llvm { .. } | Error::Unsupported { .. }) = compiled { return Ok(()) }
//! let report = compiled?.report().to_string();
//! assert!(report.contains("12 warps"), "{report}");
//! assert!(report.contains("two warp groups in ping-pong"), "{report}");
//! #     Ok(())
//! # }
//! ```
//!
//! ```text
//! kernel persistent for sm_90a: 12 warps
//!   loop fed by warps of their own through 6 slots of 32768 bytes, one product in flight, two warp groups in ping-pong
//! ```
//!
//! `num_warps` is how many warps compute a tile, and shared memory has room for one program per SM. So the compiler gives
//! the program two consumer groups of four warps that work in ping-pong: each multiplies every second tile, and a barrier
//! lets it begin when the other has consumed its last operands. From then on the tensor cores work for one group while the
//! other runs its epilogue, so the epilogue costs no time, however slow it is. The price is that 128 × 128 tiles read more:
//! `BM * BN / (BM + BN)` goes from 85 back to 64, which the L2 cache still delivers. It pays where tiles end often, that is
//! where `k` is short, as the table shows at 8192² × 512.
//!
//! Ping-pong needs independent tiles: the loop over tiles contains one loop of products, results leave through descriptors,
//! and nothing else is written. Otherwise one group multiplies, and the report does not mention turns.
//!
//! # Where to go from here
//!
//! An epilogue (a bias, an activation, a scale, another dtype) is written where the sums are: between the loop and the
//! store, and costs no pass over memory. Other sizes want other tiles: few rows of `a` want `BM` of 16 and many slots, as
//! such products only read `b`; a product with fewer tiles than multiprocessors wants smaller ones, or several programs
//! per tile. The same goes for the partial last wave, when the tile count slightly exceeds a multiple of the SM count.
//!
//! The examples `05_matmul`, `06_persistent_matmul` and `07_grouped_matmul` begin where this page ends.
