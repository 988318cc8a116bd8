//! One number everywhere, written by a launch: filling memory is no work of a stream that is captured.

use super::copy::copy_into;
use crate::{Context, TensorView, TensorViewMut};
use tilewright::prelude::*;
use tilewright::{Result, ViewMut};

/// Elements of a program.
const BLOCK: usize = 2048;

#[kernel]
fn fill_elements<T: Num, const BLOCK: usize>(out: PtrMut<T>, value: i32, len: i64) {
    let at = program_id(0) as i64 * BLOCK as i64 + arange(0, BLOCK) as i64;
    store(out + at, full([BLOCK], value) as T, mask = at < len);
}

/// Writes `value`, which `T` has, to all elements.
pub(crate) fn fill<T: Num>(cx: &Context, out: ViewMut<'_, T>, value: i32) -> Result<()> {
    let len = out.len();
    if len == 0 {
        return Ok(());
    }
    FillElementsConsts { BLOCK }
        .call(out, value, len as i64)
        .grid(len.div_ceil(BLOCK))
        .num_warps(4)
        .stream(cx.stream())
        .launch(cx.device())
}

/// Zeros.
pub(crate) fn write_zeros<T: Num>(cx: &Context, out: ViewMut<'_, T>) -> Result<()> {
    fill(cx, out, 0)
}

/// Zeros to the elements of a tensor alone: what lies between them stays. Where there is something, a zero is allocated.
pub(crate) fn write_zeros_between<T: Num, const R: usize>(cx: &Context, out: TensorViewMut<'_, T, R>) -> Result<()> {
    if out.is_contiguous() {
        return write_zeros(cx, out.elements());
    }
    let mut zero = cx.device().empty(1)?;
    write_zeros(cx, zero.as_view_mut())?;
    copy_into(cx, TensorView::with_strides(&zero, out.shape(), [0; R])?, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::check_instructions;
    use tilewright::{Device, Target};

    #[test]
    fn elements_are_written_wide() {
        let target = Target::sm_90a();
        let compiled = FillElementsConsts { BLOCK }.request::<F8E4M3>().num_warps(4).compile(target);
        check_instructions("fill f8e4m3", compiled, &["st.global.v"]);
        let compiled = FillElementsConsts { BLOCK }.request::<f64>().num_warps(4).compile(target);
        check_instructions("fill f64", compiled, &["st.global.v"]);
    }

    #[test]
    fn what_lies_between_elements_stays() {
        let cx = Context::new(&Device::cpu());
        let mut x = cx.device().full(12, 7.0f32).unwrap();
        for (shape, strides) in [([2, 2], [6, 1]), ([0, 2], [6, 1])] {
            write_zeros_between(&cx, TensorViewMut::with_strides(&mut x, shape, strides).unwrap()).unwrap();
        }
        assert_eq!(x.to_vec().unwrap(), [0.0, 0.0, 7.0, 7.0, 7.0, 7.0, 0.0, 0.0, 7.0, 7.0, 7.0, 7.0]);
    }

    #[test]
    fn all_elements_are_written_and_no_others() {
        let cx = Context::new(&Device::cpu());
        for len in [0, 1, 2049] {
            let mut x = cx.device().full(len + 1, 7.0f32).unwrap();
            fill(&cx, x.slice_mut(..len).unwrap(), -1).unwrap();
            assert_eq!(x.to_vec().unwrap(), [vec![-1.0; len], vec![7.0]].concat());
        }
    }
}
