//! Attention in eleven steps: from the obvious kernel to one that keeps tensor cores busy.
//!
//! This ladder begins where that of [`matmul`](super::matmul) ends: loads ahead, large tiles, descriptors and warps
//! that fetch come again, in fewer words. What is new is that a loop has two products of which one feeds the other,
//! with a softmax between them that tensor cores cannot compute. Each rung changes one thing, in the kernel or in the
//! options of its launch.
//!
//! # What each rung gains
//!
//! `out = softmax(q @ k^T / sqrt(d)) @ v` for heads of `d` = 128 numbers, in f16 with sums in f32. Columns are heads ×
//! rows, in TFLOP/s of `4 * heads * rows^2 * d` operations, half of them under a causal mask, whether or not a kernel
//! computes the other half. Everybody runs in one process, in turns, on normally distributed numbers, with the L2 cache
//! flushed before each run, after rows of every result were compared with a reference in f64. `gain` is over the rung
//! before in the same column.
//!
#![doc = include_str!("attention/rates.md")]
//!
//! Measure it by `cargo bench -p tilewright-bench --bench attention -- --ladder`; `cargo run --release -p
//! tilewright-bench --bin readme-table` makes the table of the results.
//!
//! # Rung 1: three passes
//!
//! The definition: the softmax of a row needs its largest score, so that no exponential overflows, then the sum of
//! exponentials, then each weight. A program has a block of queries, and goes along the keys three times.
//!
//! ```
#![doc = include_str!("attention/passes.rs")]
//!
//! fn main() -> Result<(), Error> {
//!     let (heads, len, d) = (2usize, 20usize, 16usize);
//!     let device = Device::cpu(); // or `Device::best()?`
//!     let wave = |at: usize, by: f32| f16::from_f32((at as f32 * by).sin());
//!     let numbers = |by: f32| (0..heads * len * d).map(|at| wave(at, by)).collect::<Vec<f16>>();
//!     let (x, y, z) = (numbers(0.7), numbers(1.1), numbers(1.3));
//!     let (q, k, v) = (device.upload(&x)?, device.upload(&y)?, device.upload(&z)?);
//!     let mut out = device.zeros::<f16>(heads * len * d)?;
//!     let scale = 1.0 / (d as f32).sqrt();
//!     let call = PassesConsts { BM: 16, BN: 16, D: 16, CAUSAL: true }.call(&q, &k, &v, &mut out, len as i32, scale);
//!     call.grid((len.div_ceil(16), heads)).launch(&device)?;
//!     for (at, got) in out.to_vec()?.into_iter().enumerate() {
//!         let (head, row, column) = (at / d / len, at / d % len, at % d);
//!         let of = |x: &[f16], row: usize, column: usize| x[(head * len + row) * d + column].to_f32();
//!         let weight = |key: usize| ((0..d).map(|c| of(&x, row, c) * of(&y, key, c)).sum::<f32>() * scale).exp();
//!         let total: f32 = (0..=row).map(weight).sum();
//!         let want: f32 = (0..=row).map(|key| weight(key) * of(&z, key, column)).sum::<f32>() / total;
//!         // Weights and the result are rounded to f16; their values are below 1.
//!         assert!((got.to_f32() - want).abs() < 2e-3, "{got} is not {want}");
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Nothing of the size `len * len` is in memory: scores are made where they are used, and made again. That is the idea
//! of flash attention already, at the price of two more products for every score: this kernel multiplies twice as much
//! as the definition asks for. Its report says what else it lacks:
//!
//! ```text
//! `k` is not fetched ahead: its loop has one stage, as it was asked for
//! the product is waited for at once: the loop around it is not pipelined
//! ```
//!
//! With four warps and 64 queries, products are `wgmma` from the first rung on.
//!
//! # Rung 2: one pass
//!
//! The largest score so far is as good as the largest of all, if what was summed with another one is corrected: when
//! the peak rises from `a` to `b`, sums with weights relative to `a` are multiplied by `exp(a - b)` (Milakov and
//! Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022). So one loop
//! carries three things for each row: the peak, the sum of weights, and the sum of values by their weights.
//!
//! ```
#![doc = include_str!("attention/online.rs")]
//! # fn main() {}
//! ```
//!
//! Products are down to those of the definition, and so is what is read. Division comes last, once for each result
//! rather than once for each weight. Scores stay in the registers in which `wgmma` left them: rounded to f16, they have
//! the layout that the next `wgmma` takes its left factor in, so that weights never go through shared memory. The
//! report would name a conversion of layouts if they did; the only one left is that of the result, before it is stored.
//!
//! # Rung 3: powers of two
//!
//! The hardware has an instruction for 2<sup>x</sup>; `exp(x)` is that of `x * log2(e)`. Since `s * scale` comes before
//! it anyhow, both factors are one, and since a peak is subtracted, the multiplication is part of a fused multiply-add:
//! `exp2(s * factor - peak)`, two instructions a score. The peak is that of unscaled scores, scaled once for each row.
//! `#[kernel(flush = true)]` lets f32 take subnormal numbers for zeros; without it every `exp` is embedded in
//! instructions that keep those.
//!
//! ```
#![doc = include_str!("attention/powers.rs")]
//! # fn main() -> Result<(), Error> {
//! #     let device = Device::cpu();
//! #     let x = device.zeros::<f16>(256 * 128)?;
//! #     let mut out = device.zeros::<f16>(256 * 128)?;
//! #     // Rungs 3 and 4 are this kernel.
//! #     for (stages, said) in [(1, "is not fetched ahead"), (2, "waited for at once"), (3, "products stay in flight")] {
//! #         let consts = PowersConsts { BM: 64, BN: 64, D: 128, CAUSAL: false };
//! #         let call = consts.call(&x, &x, &x, &mut out, 256, 0.1).num_warps(4).num_stages(stages);
//! #         let compiled = call.compile(Target::sm_90a());
//! #         if let Err(Error::Llvm { .. } | Error::Unsupported { .. }) = compiled { return Ok(()) }
//! #         let compiled = compiled?;
//! #         assert!(compiled.report().contains(said), "{}", compiled.report());
//! #         assert!(compiled.ptx().contains("wgmma.mma_async"), "{}", compiled.report());
//! #     }
//! #     Ok(())
//! # }
//! ```
//!
//! Why every instruction counts here and did not in a matrix product: a multiprocessor of an H100 multiplies and adds
//! 2048 pairs of f16 in a cycle, so that a score with its two products of 128 takes an eighth of a cycle. It computes
//! 16 powers in a cycle, so that the power of a score takes half as long as its products, and 128 other f32 operations,
//! each of which takes a sixteenth as long. The softmax must be short, and it must happen while tensor cores multiply.
//!
//! Peaks begin at `f32::MIN` rather than at minus infinity: then `peak - higher` is never the difference of two
//! infinities, not even for rows that see nothing.
//!
//! # Rung 4: loads ahead
//!
//! `.num_stages(3)`, and nothing else: keys and values of the next blocks are on their way by `cp.async` while this one
//! is multiplied, and products are issued without being waited for at once.
//!
//! ```text
//! loop pipelined with 3 stages of 32768 bytes: `k` by cp.async, `v` by cp.async; products stay in flight
//! ```
//!
//! "In flight" means that the product of weights and values runs on while the next iteration begins. With two stages
//! only, the report says of both products that they are waited for at once.
//!
//! # Rung 5: tensor descriptors
//!
//! A descriptor of `[heads, len, D]` gives blocks of one head. What lies behind the last row reads as zero and is not
//! written, so that the masks of loads and stores are gone, and with them the registers for addresses. Scores of keys
//! that do not exist still have to be hidden: a zero is a score like any other.
//!
//! ```
#![doc = include_str!("attention/blocks.rs")]
//! # fn main() -> Result<(), Error> {
//! #     let device = Device::cpu();
//! #     let x = device.zeros::<f16>(2 * 256 * 128)?;
//! #     let mut out = device.zeros::<f16>(2 * 256 * 128)?;
//! #     let x = TensorDesc::new(&x, [2, 256, 128])?;
//! #     let mut out = TensorDescMut::new(&mut out, [2, 256, 128])?;
//! #     let consts = BlocksConsts { BM: 64, BN: 64, D: 128, CAUSAL: false };
//! #     let call = consts.call(&x, &x, &x, &mut out, 256, 0.1).num_warps(4).num_stages(3);
//! #     let compiled = call.compile(Target::sm_90a());
//! #     if let Err(Error::Llvm { .. } | Error::Unsupported { .. }) = compiled { return Ok(()) }
//! #     let report = compiled?.report().to_string();
//! #     assert!(report.contains("`k` by tensor copy, `v` by tensor copy; products stay in flight"), "{report}");
//! #     assert!(report.contains("no conversions between layouts"), "{report}");
//! #     Ok(())
//! # }
//! ```
//!
//! ```text
//! loop pipelined with 3 stages of 32768 bytes: `k` by tensor copy, `v` by tensor copy; products stay in flight
//! no conversions between layouts
//! ```
//!
//! # Rung 6: masks at edges
//!
//! Of all blocks only the last may reach beyond the keys, and under a causal mask only those that the diagonal crosses
//! have both kinds of scores. So the comparisons go behind an `if` on numbers that the whole program shares: a branch
//! that all threads take or none, for a comparison and a selection of every score.
//!
//! ```
#![doc = include_str!("attention/edges.rs")]
//! # fn main() -> Result<(), Error> {
//! #     let device = Device::cpu();
//! #     let x = device.zeros::<f16>(2 * 256 * 128)?;
//! #     let mut out = device.zeros::<f16>(2 * 256 * 128)?;
//! #     let x = TensorDesc::new(&x, [2, 256, 128])?;
//! #     let mut out = TensorDescMut::new(&mut out, [2, 256, 128])?;
//! #     // Rungs 6 and 7 are this kernel.
//! #     for (bm, warps) in [(64, 4), (128, 8)] {
//! #         let consts = EdgesConsts { BM: bm, BN: 64, D: 128, CAUSAL: true };
//! #         let call = consts.call(&x, &x, &x, &mut out, 256, 0.1).num_warps(warps).num_stages(3);
//! #         let compiled = call.compile(Target::sm_90a());
//! #         if let Err(Error::Llvm { .. } | Error::Unsupported { .. }) = compiled { return Ok(()) }
//! #         let report = compiled?.report().to_string();
//! #         assert!(report.contains("products stay in flight"), "{report}");
//! #     }
//! #     Ok(())
//! # }
//! ```
//!
//! A causal mask still costs as much as none: blocks above the diagonal are computed, hidden, and count nothing. That
//! is left for the last rung.
//!
//! # Rung 7: more queries
//!
//! 128 queries by two warp groups instead of 64 by one: every key and value that is read meets twice as many queries,
//! so that the L2 cache and the copies have half as much to do. Before, two programs shared a multiprocessor; now one
//! has all of it. Both groups wait for the same blocks, which keeps them in step, and that is what is wrong with it:
//! they compute their exponentials at about the same time, while tensor cores have nothing to do.
//!
//! # Rung 8: two groups in turns
//!
//! `#[warp_specialize]` on the loop, and nothing else. Four more warps fetch, and the groups that compute wait for
//! nothing but full slots. And since both groups multiply and compute in turns, the compiler makes them take turns at
//! it: a barrier lets one group issue its products while the other works on its softmax (Shah et al.,
//! "FlashAttention-3", 2024).
//!
//! ```
#![doc = include_str!("attention/divided.rs")]
//! # fn main() -> Result<(), Error> {
//! #     let device = Device::cpu();
//! #     let x = device.zeros::<f16>(2 * 256 * 128)?;
//! #     let mut out = device.zeros::<f16>(2 * 256 * 128)?;
//! #     let x = TensorDesc::new(&x, [2, 256, 128])?;
//! #     let mut out = TensorDescMut::new(&mut out, [2, 256, 128])?;
//! #     // Rungs 8 and 9 are this kernel.
//! #     for (bn, stages) in [(64, 3), (128, 2)] {
//! #         let consts = DividedConsts { BM: 128, BN: bn, D: 128, CAUSAL: false };
//! #         let call = consts.call(&x, &x, &x, &mut out, 256, 0.1).num_warps(8).num_stages(stages);
//! #         let compiled = call.compile(Target::sm_90a());
//! #         if let Err(Error::Llvm { .. } | Error::Unsupported { .. }) = compiled { return Ok(()) }
//! #         let report = compiled?.report().to_string();
//! #         assert!(report.contains("12 warps"), "{report}");
//! #         assert!(report.contains("one product in flight, two warp groups take turns at products"), "{report}");
//! #     }
//! #     Ok(())
//! # }
//! ```
//!
//! ```text
//! kernel divided for sm_90a: 12 warps
//!   loop fed by warps of their own through 3 slots of 32768 bytes, one product in flight, two warp groups take turns at products
//! ```
//!
//! Warps that fetch need few registers and give theirs to the others. "One product in flight" is that of weights and
//! values: its sum is rescaled at the end of the next softmax, which is where it is waited for.
//!
//! # Rung 9: more keys
//!
//! `BN` of 128, and two stages instead of three so that shared memory holds them: half as many iterations, each with
//! its waits, barriers and reductions across threads, and half as many rescalings of the sum, which are a
//! multiplication for each of its 128 columns. A thread now holds 64 scores beside 64 sums.
//!
//! # Rung 10: skewed by hand
//!
//! In an iteration, the weights wait for the scores, and the second product waits for the weights. If the weights of a
//! block are multiplied one iteration later, the two products of an iteration do not depend on each other: tensor cores
//! have work for both, and the softmax between them belongs to the next one.
//!
//! ```
#![doc = include_str!("attention/skewed.rs")]
//! # fn main() -> Result<(), Error> {
//! #     let device = Device::cpu();
//! #     let x = device.zeros::<f16>(2 * 256 * 128)?;
//! #     let mut out = device.zeros::<f16>(2 * 256 * 128)?;
//! #     let x = TensorDesc::new(&x, [2, 256, 128])?;
//! #     let mut out = TensorDescMut::new(&mut out, [2, 256, 128])?;
//! #     let consts = SkewedConsts { BM: 128, BN: 128, D: 128, CAUSAL: false };
//! #     let call = consts.call(&x, &x, &x, &mut out, 256, 0.1).num_warps(8).num_stages(2);
//! #     let compiled = call.compile(Target::sm_90a());
//! #     if let Err(Error::Llvm { .. } | Error::Unsupported { .. }) = compiled { return Ok(()) }
//! #     let report = compiled?.report().to_string();
//! #     assert!(report.contains("products are waited for in each iteration"), "{report}");
//! #     assert!(report.contains("two warp groups take turns at products"), "{report}");
//! #     Ok(())
//! # }
//! ```
//!
//! The loop begins with weights of zero and with values in front of the first row, which a descriptor reads as zeros,
//! and the last weights are multiplied behind it. The price is registers, as the weights of a block live on beside the
//! scores of the next, and a loop that is harder to read. Whether it pays depends on what else fills the gaps: two
//! groups in turns fill them too, one with the products of the other. Look at the table before you write a loop like
//! this.
//!
//! # Rung 11: no wasted blocks
//!
//! Back to the kernel of rung 9, for the causal column. A block of queries sees no key behind its own last row, so the
//! loop ends there, and half of all blocks are gone. What is left is uneven: the last block of queries has as many
//! blocks of keys as there are, the first has one. Programs start in the order of their numbers, and a long one that
//! starts last keeps one multiprocessor busy while the others are done. So the order is turned around: the longest come
//! first.
//!
//! ```
#![doc = include_str!("attention/causal.rs")]
//! # fn main() -> Result<(), Error> {
//! #     let (heads, len, d) = (2usize, 40usize, 16usize);
//! #     let device = Device::cpu();
//! #     let numbers = |by: f32| (0..heads * len * d).map(|at| f16::from_f32((at as f32 * by).sin())).collect::<Vec<f16>>();
//! #     let (x, y, z) = (numbers(0.7), numbers(1.1), numbers(1.3));
//! #     let (q, k, v) = (device.upload(&x)?, device.upload(&y)?, device.upload(&z)?);
//! #     let mut out = device.zeros::<f16>(heads * len * d)?;
//! #     let scale = 1.0 / (d as f32).sqrt();
//! #     {
//! #         let shape = [heads, len, d];
//! #         let (q, k, v) = (TensorDesc::new(&q, shape)?, TensorDesc::new(&k, shape)?, TensorDesc::new(&v, shape)?);
//! #         let mut out = TensorDescMut::new(&mut out, shape)?;
//! #         let consts = CausalConsts { BM: 32, BN: 16, D: 16, CAUSAL: true };
//! #         consts.call(&q, &k, &v, &mut out, len as i32, scale).grid((len.div_ceil(32), heads)).launch(&device)?;
//! #     }
//! #     for (at, got) in out.to_vec()?.into_iter().enumerate() {
//! #         let (head, row, column) = (at / d / len, at / d % len, at % d);
//! #         let of = |x: &[f16], row: usize, column: usize| x[(head * len + row) * d + column].to_f32();
//! #         let weight = |key: usize| ((0..d).map(|c| of(&x, row, c) * of(&y, key, c)).sum::<f32>() * scale).exp();
//! #         let total: f32 = (0..=row).map(weight).sum();
//! #         let want: f32 = (0..=row).map(|key| weight(key) * of(&z, key, column)).sum::<f32>() / total;
//! #         assert!((got.to_f32() - want).abs() < 2e-3, "{got} is not {want}");
//! #     }
//! #     Ok(())
//! # }
//! ```
//!
//! Without a mask nothing changes but the order of programs.
//!
//! # Where to go from here
//!
//! The package `tilewright-kernels` has this kernel as `attention::forward`, with windows, soft caps, biases, packed
//! sequences, and heads of queries that share one of keys; beside it are its gradients, and decoding over pages. Its
//! example `transformer` trains a model with them. Heads of 64 numbers want other blocks than those of 128, as there
//! are half as many products for each exponential: `benches/results/attention.md` says which.
