//! Limits of negated integers: ptxas must not lose the negation.

use tilewright::prelude::*;
use tilewright_tests::assembler::{assemble_to, disassemble};

macro_rules! three {
    ($name:ident, $ty:ty, $limit:ident) => {
        #[kernel(num_warps = 4)]
        fn $name(x: Ptr<$ty>, out: PtrMut<$ty>) {
            let i = arange(0, 128);
            let (a, b, c) = (load(x + i), load(x + (i + 128)), load(x + (i + 256)));
            store(out + i, $limit($limit(a, -b), c));
        }
    };
}
three!(largest_i32, i32, maximum);
three!(smallest_i32, i32, minimum);
three!(largest_i16, i16, maximum);
three!(smallest_i16, i16, minimum);

/// A kernel has one negation, which ptxas writes as an instruction of its own: that for three operands has no room for it.
#[test]
fn a_negated_operand_of_three_is_negated() {
    let kernels = [
        LargestI32Consts {}.compile(Target::sm_90a()),
        SmallestI32Consts {}.compile(Target::sm_90a()),
        LargestI16Consts {}.compile(Target::sm_90a()),
        SmallestI16Consts {}.compile(Target::sm_90a()),
    ];
    for compiled in kernels {
        let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
        let Some(text) = assemble_to(compiled.ptx(), "sm_90a").and_then(|(_, cubin)| disassemble(&cubin)) else {
            return;
        };
        let negations = text.lines().filter(|line| line.contains("-R") && !line.contains("MNMX3")).count();
        assert_eq!(negations, 1, "{}\n{text}", compiled.ptx());
    }
}
