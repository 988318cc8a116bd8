//! Every kernel of the examples, benchmarks and tests that can be reached, in the configurations that are launched.
//!
//! [`each`] compiles those of a [`Source`] that are wanted, one after the other, and hands on their [`Code`]:
//!
//! ```ignore
//! kernels::each(Source::Examples, &|name, target| target == Target::sm_80(), &mut |code| println!("{}", code.ptx));
//! ```
//!
//! A kernel is known by a name that says where it is from and how it is configured, `example/matmul/bm=128..`, and by its
//! target. Nothing is launched, and no GPU is needed.

mod benches;
mod examples;
mod files;
mod suites;

use tilewright::Target;

/// The code of a kernel.
pub struct Code {
    /// Where it is from and how it is configured, without spaces.
    pub name: String,
    /// What it was compiled for.
    pub target: Target,
    /// The PTX.
    pub ptx: String,
}

/// Where kernels are from: the first part of their names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// The examples, as they launch their kernels.
    Examples,
    /// The benchmark of kernels that are limited by memory.
    Bandwidth,
    /// The benchmark of matrix products.
    Products,
    /// The kernels of the guide.
    Guide,
    /// The `.tile` file tests of `kernel-core`.
    Files,
    /// The `.tile` kernels of the code generator's tests.
    Kernels,
    /// The kernels of the suites `codegen` and `delays`.
    Suites,
}

impl Source {
    /// All of them.
    pub const ALL: [Source; 7] = [
        Source::Examples,
        Source::Bandwidth,
        Source::Products,
        Source::Guide,
        Source::Files,
        Source::Kernels,
        Source::Suites,
    ];

    /// What names of its kernels begin with.
    pub fn name(self) -> &'static str {
        match self {
            Source::Examples => "example",
            Source::Bandwidth => "bandwidth",
            Source::Products => "product",
            Source::Guide => "guide",
            Source::Files => "file",
            Source::Kernels => "kernel",
            Source::Suites => "suite",
        }
    }
}

/// Whether a kernel is to be compiled for a target. Kernels of benchmarks that belong to one launch are asked about
/// together, without the number at the end of their names.
pub type Wanted = dyn Fn(&str, Target) -> bool;

/// Compiles the kernels of a source that are wanted, without those that need more than a target has.
///
/// # Panics
/// If one cannot be compiled.
pub fn each(source: Source, wanted: &'static Wanted, keep: &mut dyn FnMut(Code)) {
    for target in Target::all() {
        let mut collector = Collector { source, target, wanted, keep };
        match source {
            Source::Examples => examples::compile(&mut collector),
            Source::Bandwidth => benches::bandwidth(&mut collector),
            Source::Products => benches::products(&mut collector),
            Source::Guide => benches::guide(&mut collector),
            Source::Files => files::filetests(&mut collector),
            Source::Kernels => files::kernels(&mut collector),
            Source::Suites => suites::compile(&mut collector),
        }
    }
}

/// Which kernels have snapshots: all of which there are few. Of the benchmarks for Hopper those whose sizes are multiples
/// of 16 at aligned addresses, and a part of the others; for the other targets, a smaller part. The part depends on a
/// kernel's name alone, so that it stays the same when others are added. Of matrix products that are compiled alike, one
/// size represents the others.
pub fn representative(name: &str, target: Target) -> bool {
    let hopper = target == Target::sm_90a();
    let part = |of: u64| hash(name.as_bytes()).is_multiple_of(of);
    match name.split('/').next() {
        Some("bandwidth") => part(16) || hopper && (part(4) || benches::is_even(name)),
        Some("product") => benches::is_representative(name) && (hopper || part(8)),
        _ => true,
    }
}

/// Compiles for one target and names what comes out.
struct Collector<'a> {
    source: Source,
    target: Target,
    wanted: &'static Wanted,
    keep: &'a mut dyn FnMut(Code),
}

impl Collector<'_> {
    /// Compiles a kernel by `compile`, if it is wanted and the target has room for it.
    fn add(&mut self, name: &str, compile: impl FnOnce(Target) -> Result<String, tilewright::Error>) {
        let name = format!("{}/{name}", self.source.name()).replace([' ', '*'], "_");
        if (self.wanted)(&name, self.target) {
            match compile(self.target) {
                Ok(ptx) => (self.keep)(Code { name, target: self.target, ptx }),
                // Not every target has the shared memory of a Hopper GPU.
                Err(tilewright::Error::Resources { .. }) => {}
                Err(error) => panic!("{name} for {}: {error}", self.target.name()),
            }
        }
    }
}

/// The hash of a text, the same in every process and on every machine: 64-bit FNV-1a, from
/// <http://www.isthe.com/chongo/tech/comp/fnv/>.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
