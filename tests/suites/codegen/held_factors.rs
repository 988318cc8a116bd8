//! Left factors in registers that outlive an iteration: where the code reads them so that ptxas keeps them.

use tilewright::prelude::*;

/// Two products in an iteration, whose left factors are `$left` and what the first one gives.
macro_rules! chain {
    ($name:ident, |$x:ident, $y:ident, $flag:ident, $start:ident| $left:expr) => {
        #[kernel(num_warps = 4)]
        #[allow(unused_variables, reason = "not every factor is made of all of them")]
        fn $name(
            q: TensorDesc<f16, { [64, 64] }>,
            k: TensorDesc<f16, { [64, 64] }>,
            out: PtrMut<f32>,
            len: i32,
            $flag: i32,
        ) {
            let one = (arange(0, 64)[(.., None)] == arange(0, 64)) as i32 as f16;
            let $x = dot(q.load([program_id(0) * 64, 0]), one) as f16;
            let $y = $x + $x;
            let mut acc = zeros::<f32>([64, 64]);
            for $start in (0..len).step_by(64) {
                let block = k.load([$start, 0]);
                let s = dot($left, block.trans());
                acc = dot(s as f16, block, acc = acc);
            }
            store(out + arange(0, 64)[(.., None)] * 64 + arange(0, 64), acc);
        }
    };
}
chain!(outside, |x, y, flag, start| x);
chain!(chosen, |x, y, flag, start| if flag > 0 { x } else { y });
chain!(varying, |x, y, flag, start| x * (start + flag) as f16);

const READ: &str = "@%never st.shared.v4.b32";

/// How many fragments are read for ptxas, and whether that is before the last product of the kernel.
fn reads(compiled: Result<tilewright::launch::CompiledKernel, Error>) -> (usize, bool) {
    let ptx = compiled.unwrap_or_else(|error| panic!("{error}")).ptx().to_string();
    let in_iteration = match (ptx.find(READ), ptx.rfind("wgmma.mma_async")) {
        (Some(read), Some(last)) => read < last,
        _ => false,
    };
    (ptx.matches(READ).count(), in_iteration)
}

#[test]
fn a_factor_from_before_a_loop_is_read_behind_it() {
    assert_eq!(reads(OutsideConsts {}.compile(Target::sm_90a())), (4, false), "once per instruction of 16 along K");
}

#[test]
fn a_factor_that_may_leave_the_loop_is_read_in_it() {
    assert_eq!(reads(ChosenConsts {}.compile(Target::sm_90a())), (4, true));
}

#[test]
fn a_factor_of_the_iteration_is_not_read() {
    assert_eq!(reads(VaryingConsts {}.compile(Target::sm_90a())), (0, false));
}

#[test]
fn other_instructions_do_not_need_it() {
    assert_eq!(reads(OutsideConsts {}.compile(Target::sm_80())), (0, false));
}
