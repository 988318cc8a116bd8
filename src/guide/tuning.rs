//! How a kernel gets the configuration that is fastest where it runs.
//!
//! A kernel's constexprs, warps and stages decide how fast it is, and which are best depends on the device and the sizes. The
//! module [`tune`](crate::tune) finds them by measuring, once, and keeps them in a table in your repository. Launches look
//! into the table. They never measure.
//!
//! # A space
//!
//! `#[kernel]` gives the constexprs a space with a method for each, of its type. Values of another type do not compile:
//!
//! ```compile_fail,E0277
//! # use tilewright::prelude::*;
//! #[kernel]
//! fn fill<const BLOCK: usize>(out: PtrMut<f32>) {
//!     store(out + arange(0, BLOCK), 1.0);
//! }
//! let space = FillConsts::space().BLOCK(["64"]);
//! ```
//!
//! Nor do methods that the kernel has no constexpr for:
//!
//! ```
//! use tilewright::prelude::*;
//! use tilewright::tune::{Table, Tuner};
//!
//! /// out[i] = x[i] * factor
//! #[kernel]
//! pub fn scale<T: Num, const BLOCK: usize>(x: Ptr<T>, out: PtrMut<T>, factor: T, n: i32) {
//!     static_assert!(BLOCK >= 64);
//!     let i = program_id(0) * BLOCK + arange(0, BLOCK);
//!     store(out + i, load(x + i, mask = i < n) * factor, mask = i < n);
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let (device, n) = (Device::best()?, 5000);
//!     let (x, mut out) = (device.full(n, 2.0f32)?, device.zeros::<f32>(n)?);
//!
//!     // What to choose from. `where_` sees constexprs as fields.
//!     let space = ScaleConsts::space().BLOCK([32, 256, 1024, 4096]).num_warps([4, 8]).where_(|config| config.BLOCK < 4096);
//!
//!     // The closure says how a configuration is launched.
//!     let outcome = Tuner::new(space).sizes(&[n]).run(&device, |config, trial| {
//!         trial.launch(config.call(&x, &mut out, 3.0, n as i32).grid_with(|consts| n.div_ceil(consts.BLOCK)))
//!     })?;
//!     println!("{} in {:.4} ms", outcome.best, outcome.ms);
//!     assert_eq!(out.to_vec()?, vec![0.0; n], "outputs are as they were before");
//!
//!     // Keeping it, which `.table("tuned/scale.toml")` does by itself, and launching by it.
//!     let mut table = Table::new();
//!     table.insert("scale", device.name(), "f32", &[n], &outcome.best);
//!     let tuned = Table::parse(&table.to_toml())?.of("scale", device.name(), "f32")?;
//!     let call = scale::<_, 256>(&x, &mut out, 3.0, n as i32).tuned(&tuned, &[n]);
//!     call.grid_with(|consts| n.div_ceil(consts.BLOCK)).launch(&device)?;
//!     assert_eq!(out.to_vec()?, vec![6.0; n]);
//!     Ok(())
//! }
//! ```
//!
//! # What happens
//!
//! 1. **Pruning.** Each configuration is bound and placed on all cores, without LLVM and without a GPU, in a few milliseconds.
//!    Assertions that do not hold, too much shared memory, more registers than there are, and configurations that become the
//!    same code as another are out. [`Tuner::plan`](crate::tune::Tuner::plan) does this alone; with
//!    [`Tuner::target`](crate::tune::Tuner::target) and
//!    [`Tuner::multiprocessors`](crate::tune::Tuner::multiprocessors) for a GPU that you do not have.
//! 2. **Order.** A cost model reads the placed kernel: operations, bytes, what hides what. It says what to try first, and
//!    throws nothing away.
//! 3. **Search.** Up to 64 configurations are all tried. Of more, the search learns along each axis what the model gets wrong,
//!    and stops when nothing better comes, when the time is over, on Ctrl-C if you asked for that, or at the bound that you
//!    gave. The same seed gives the same search.
//! 4. **Measuring.** Other threads compile while one measures, with cold caches. Results are compared with those of the first
//!    configuration. What fails, for whatever reason, is out, and its error is nobody else's. Where a kernel without checks
//!    breaks the driver's context, the search ends with the best so far and a warning.
//! 5. **The final.** The best run in turns. A configuration that you said to start at stays, unless another is faster beyond
//!    noise.
//!
//! On a GPU nothing can stop a kernel that runs: one that never ends hangs the search, which also looks at Ctrl-C only between
//! runs (a second one ends the program). On the CPU it is stopped.
//!
//! [`Outcome::explain`](crate::tune::Outcome::explain) says of any configuration why it is not the winner,
//! [`Outcome::chart`](crate::tune::Outcome::chart) and its neighbours draw pictures.
//!
//! Buffers that a kernel writes begin each trial as they were before tuning, and end so: kernels that add to their output or
//! work in place need nothing special. Work of several launches is tuned with
//! [`Trial::run`](crate::launch::Trial::run): its launches are looked at before they are made, so that all of this holds for
//! them, but what they write is left to the work. [`Trial::run_checked`](crate::launch::Trial::run_checked) looks at results.
//!
//! # Keeping
//!
//! With `.table("tuned/scale.toml")` the winner goes into that file, under the device's name, the dtypes, and the sizes
//! rounded up to powers of two. Tuning again tries the row that is there first, and replaces it only by what is faster beyond
//! noise; rows of near sizes and of other devices are tried next. Every trial goes into `tuned/scale.trials.jsonl` beside it. What was measured once, of the same code
//! and sizes, is not measured again: another value of an axis costs the trials with that value. Two processes may write at
//! the same time: they take turns by the files `tuned/.scale.toml.lock` and `tuned/.scale.trials.jsonl.lock`, which are empty
//! and stay. Tables belong into the repository; a line `.*.lock` in `tuned/.gitignore` keeps these out, and whether to keep
//! trials is yours to say.
//!
//! A table is text: read it with `Table::parse(include_str!(..))`. A test of your repository says when a row no longer
//! compiles, without a GPU:
//!
//! ```text
//! tuned.verify(|config, _| config.request::<f32>().options(config.options).place(Target::sm_90a()).map(drop))?;
//! ```
//!
//! Sizes that no row is for get the row that is nearest, up to a factor of four over all sizes, of larger sizes or of smaller
//! ones: fast enough mostly, and better than constants. A kernel that is right for some sizes only, such as one whose block
//! must hold a whole row, looks at what it is given before it launches:
//!
//! ```
//! use tilewright::prelude::*;
//! use tilewright::tune::{Table, Tuned};
//!
//! /// Multiplies each row by the reciprocal of its largest element. `BLOCK` is at least `columns`.
//! #[kernel]
//! pub fn normalise<const BLOCK: usize>(x: Ptr<f32>, out: PtrMut<f32>, columns: i32) {
//!     let (start, column) = (program_id(0) * columns, arange(0, BLOCK));
//!     let row = load(x + start + column, mask = column < columns, other = f32::NEG_INFINITY);
//!     store(out + start + column, row / max(row, axis = 0), mask = column < columns);
//! }
//!
//! fn main() -> Result<(), Error> {
//!     let (device, rows, columns) = (Device::best()?, 3, 1500);
//!     let mut table = Table::new();
//!     table.insert("normalise", device.name(), "", &[rows, 1000], &NormaliseConsts { BLOCK: 1024 }.into());
//!     let tuned: Tuned<NormaliseConsts> = table.of("normalise", device.name(), "")?;
//!
//!     let near = tuned.get(&[rows, columns]);
//!     assert_eq!(near.map(|config| config.BLOCK), Some(1024), "1000 columns are near to 1500");
//!
//!     let (x, mut out) = (device.full(rows * columns, 2.0f32)?, device.zeros::<f32>(rows * columns)?);
//!     let call = NormaliseConsts { BLOCK: columns.next_power_of_two() }.call(&x, &mut out, columns as i32);
//!     let call = match near.filter(|config| config.BLOCK >= columns) {
//!         Some(config) => call.configured(config),
//!         None => call,
//!     };
//!     call.grid(rows).launch(&device)?;
//!     assert_eq!(out.to_vec()?, vec![1.0; rows * columns]);
//!     Ok(())
//! }
//! ```
//!
//! Where a rule is better than a table, [`Tuned::heuristic`](crate::tune::Tuned::heuristic) takes a closure, and
//! [`Tuned::or`](crate::tune::Tuned::or) one for the sizes that the table does not have.
//!
//! The functions of `tilewright-kernels` are tuned in the same way, and tables for them have the same form: its module
//! `tuning` says how.
//!
//! `examples/08_tuning.rs` tunes a matrix product on whatever device there is.
