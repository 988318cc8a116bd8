//! A kernel may have any name that Rust allows.

use kernel_core::ir::DType;
use tilewright::Target;
use tilewright_tests::author::Author;
use tilewright_tests::data::Data;
use tilewright_tests::expect::exactly;

/// Names with a meaning for LLVM, for PTX or for the C library, and letters that neither knows.
const NAMES: [&str; 18] = [
    "add",
    "mov",
    "ret",
    "exp",
    "sqrt",
    "memcpy",
    "malloc",
    "main",
    "vprintf",
    "WARP_SZ",
    "global",
    "entry",
    "ntid",
    "llvm",
    "__",
    "größe",
    "核",
    "a_very_long_name_that_somebody_thought_would_say_everything_about_what_the_kernel_does",
];

#[test]
fn kernels_of_any_name_compile() {
    for name in NAMES {
        let data = Data::numbers(DType::F32, 0..64);
        let mut author = Author::new(name);
        let tile = author.load_tile(&data, &[64]);
        author.store_tile("copy", tile, exactly(&data));
        author.finish().compile(Target::sm_90a());
    }
}

mod written {
    use tilewright::prelude::*;

    #[kernel]
    pub fn r#move(größe: Ptr<f32>, r#in: PtrMut<f32>) {
        let é = arange(0, 32);
        store(r#in + é, load(größe + é));
    }
}

#[test]
fn raw_identifiers_and_letters_of_other_alphabets() {
    let compiled = written::r#MoveConsts {}.compile(Target::sm_90a());
    compiled.unwrap_or_else(|error| panic!("{error}"));
}
