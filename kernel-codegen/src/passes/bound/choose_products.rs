//! Chooses the instruction that computes each matrix product, and writes it on the product.
//!
//! ```text
//! %c = dot %a, %b, %acc                 f16[128, 64] times f16[64, 256], for 8 warps of sm_90a
//! %f = dot %d, %e, %acc                 f8e4m3 on sm_80
//! ```
//! becomes
//! ```text
//! %c = dot %a, %b, %acc {by = wgmma(256)}
//! %x = cast %d {to = f16}; %y = cast %e {to = f16}; %f = dot %x, %y, %acc {by = mma}
//! ```
//!
//! `wgmma` is chosen where the target and the sizes allow, else `mma.sync`, else scalar arithmetic ([`crate::dot`]).
//! Factors of 8-bit floats become f16 where no matrix instruction takes them as they are: every 8-bit float is an f16,
//! so products stay exact and sums are in f32 as before.
//!
//! The pass runs on the bound kernel. Placement then gives the operands layouts in which the instruction finds them,
//! everybody else reads what is written here, and the verifier says so where the two do not fit.

use kernel_core::edit::{Cursor, Result};
use kernel_core::ir::{DType, DotInstruction, DotOp, Func, Op, OpId, RegionId};

use crate::dot::{GROUP_ROWS, Kind, MAX_COLUMNS, Problem, WARP_TILE};
use crate::report::WaitReport;
use kernel_core::target::{GROUP_WARPS, Target};

/// Runs the pass on all regions of a bound kernel. Says which products are no asynchronous ones, and why.
///
/// # Errors
/// If the pass writes an operation that breaks a type rule, which is a mistake in it.
pub(crate) fn run(func: &mut Func, target: Target, num_warps: u32) -> Result<Vec<WaitReport>> {
    let machine = Available { target, num_warps };
    let mut waits = Vec::new();
    for index in 0..func.regions.len() {
        let region = RegionId::new(index as u32);
        let ops = func.region(region).ops.clone();
        let mut out = Vec::with_capacity(ops.len());
        for id in ops {
            if let Some(problem) = Problem::of(func, func.op(id)) {
                let choice = machine.choose(&problem);
                let why = machine.why_no_wgmma(&choice.multiplied(problem));
                let wait = why.map(|why| WaitReport { span: func.op(id).span, why });
                waits.extend(wait.filter(|wait| !waits.contains(wait)));
                if choice.factors == Factors::Halves {
                    widen(func, id, &mut out)?;
                }
                if let Op::Dot(DotOp::Dot { by, .. }) = &mut func.ops[id.index()].op {
                    *by = Some(choice.instruction);
                }
            }
            out.push(id);
        }
        func.regions[region.index()].ops = out;
    }
    Ok(waits)
}

/// In which dtype factors are multiplied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Factors {
    /// Their own.
    AsTheyAre,
    /// f16.
    Halves,
}

/// How a product is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Choice {
    instruction: DotInstruction,
    factors: Factors,
}

impl Choice {
    /// The product that is computed.
    fn multiplied(self, problem: Problem) -> Problem {
        match self.factors {
            Factors::AsTheyAre => problem,
            Factors::Halves => halves(&problem),
        }
    }
}

/// The same product of factors that are f16.
fn halves(problem: &Problem) -> Problem {
    Problem { a: DType::F16, b: DType::F16, ..problem.clone() }
}

/// What computes.
#[derive(Clone, Copy)]
struct Available {
    target: Target,
    num_warps: u32,
}

impl Available {
    fn choose(self, problem: &Problem) -> Choice {
        let own = Choice { instruction: self.instruction(problem), factors: Factors::AsTheyAre };
        if own.instruction != DotInstruction::Fma || !problem.a.is_fp8() {
            return own;
        }
        match self.instruction(&halves(problem)) {
            DotInstruction::Fma => own,
            instruction => Choice { instruction, factors: Factors::Halves },
        }
    }

    /// The instruction for factors of their own dtype.
    fn instruction(self, problem: &Problem) -> DotInstruction {
        match problem.kind() {
            Some(_) if self.why_no_wgmma(problem).is_none() => {
                let [_, along_n] = problem.group_warps(self.num_warps);
                DotInstruction::Wgmma { columns: (problem.n / along_n).clamp(8, MAX_COLUMNS) }
            }
            Some(kind) if self.has_mma(problem, kind) => DotInstruction::Mma,
            Some(_) | None => DotInstruction::Fma,
        }
    }

    /// Why a product is not done by `wgmma`, which goes on while the threads do something else; nothing if it is.
    fn why_no_wgmma(self, problem: &Problem) -> Option<&'static str> {
        let kind = problem.kind();
        let has_form = kind.is_some_and(|kind| match kind {
            Kind::F16 | Kind::Bf16 | Kind::Tf32 | Kind::Int8 { .. } | Kind::F8 { .. } => problem.acc != DType::F16,
            Kind::Tf32x3 | Kind::F64 => false,
        });
        let deep = kind.is_some_and(|kind| problem.k >= kind.k_tile());
        if !self.target.has_wgmma() {
            Some("the target has no `wgmma`, the product that runs on its own")
        } else if !has_form {
            Some("`wgmma` has no form for its dtypes and precision")
        } else if !problem.batch.is_empty() {
            Some("it is batched, and `wgmma` is not")
        } else if problem.m < GROUP_ROWS || problem.n < 8 || !deep {
            Some("`wgmma` multiplies at least 64 rows, 8 columns and 32 bytes of a row")
        } else if !self.num_warps.is_multiple_of(GROUP_WARPS) {
            Some("`wgmma` is done by four warps, or a multiple")
        } else {
            None
        }
    }

    fn has_mma(self, problem: &Problem, kind: Kind) -> bool {
        let has_form = match kind {
            Kind::F8 { .. } => self.target.has_f8_mma() && problem.acc == DType::F32,
            Kind::F16 | Kind::Bf16 | Kind::Tf32 | Kind::Tf32x3 | Kind::Int8 { .. } | Kind::F64 => true,
        };
        // Below a quarter of the instruction's tile, scalar arithmetic is as fast.
        let pays = problem.m * problem.n >= WARP_TILE[0] * WARP_TILE[1] / 4;
        self.target.has_mma() && has_form && pays && problem.k >= kind.k_tile()
    }
}

/// Converts the factors of a product to f16.
fn widen(func: &mut Func, id: OpId, out: &mut Vec<OpId>) -> Result<()> {
    let (operands, span) = (func.op(id).operands.clone(), func.op(id).span);
    for (place, value) in operands.into_iter().enumerate().take(2) {
        let half = Cursor::new(func, out, "choose_products").at(span).cast(value, DType::F16)?;
        func.ops[id.index()].operands[place] = half;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kernel_core::ir::DotPrecision;
    use kernel_core::layout::wgmma_columns;

    use super::*;

    fn problem(dtype: DType, m: u32, n: u32, k: u32) -> Problem {
        let precision = DotPrecision::Tf32;
        Problem { a: dtype, b: dtype, acc: DType::F32, batch: Vec::new(), m, n, k, precision }
    }

    fn choice(problem: &Problem, target: Target, num_warps: u32) -> (DotInstruction, Factors) {
        let Choice { instruction, factors } = Available { target, num_warps }.choose(problem);
        (instruction, factors)
    }

    #[test]
    fn hopper_multiplies_by_warp_groups_where_the_tile_allows() {
        let hopper = Target::sm_90a();
        let own = |problem: Problem, target, num_warps| {
            let (instruction, factors) = choice(&problem, target, num_warps);
            assert_eq!(factors, Factors::AsTheyAre, "{problem:?}");
            instruction
        };
        let big = problem(DType::BF16, 128, 256, 64);
        assert_eq!(own(big.clone(), hopper, 8), DotInstruction::Wgmma { columns: 256 });
        assert_eq!(own(big.clone(), hopper, 2), DotInstruction::Mma);
        assert_eq!(own(big, Target::sm_80(), 8), DotInstruction::Mma);
        assert_eq!(own(problem(DType::F16, 64, 128, 64), hopper, 8), DotInstruction::Wgmma { columns: 64 });
        assert_eq!(own(problem(DType::F16, 16, 128, 64), hopper, 4), DotInstruction::Mma);
        assert_eq!(own(problem(DType::F16, 128, 128, 8), hopper, 4), DotInstruction::Fma);
    }

    #[test]
    fn bytes_of_floats_are_widened_where_only_halves_have_an_instruction() {
        let bytes = problem(DType::F8E4M3, 64, 64, 32);
        let groups = DotInstruction::Wgmma { columns: 64 };
        assert_eq!(choice(&bytes, Target::sm_90a(), 4), (groups, Factors::AsTheyAre));
        assert_eq!(choice(&bytes, Target::sm_89(), 4), (DotInstruction::Mma, Factors::AsTheyAre));
        assert_eq!(choice(&bytes, Target::sm_80(), 4), (DotInstruction::Mma, Factors::Halves));
        // Sixteen along K are enough for f16 only, eight for neither.
        assert_eq!(
            choice(&Problem { k: 16, ..bytes.clone() }, Target::sm_89(), 4),
            (DotInstruction::Mma, Factors::Halves)
        );
        assert_eq!(choice(&Problem { k: 8, ..bytes }, Target::sm_89(), 4), (DotInstruction::Fma, Factors::AsTheyAre));
    }

    #[test]
    fn products_that_wait_for_their_instruction_say_why() {
        let why = |problem: &Problem, target, num_warps| Available { target, num_warps }.why_no_wgmma(problem);
        let (large, hopper) = (problem(DType::BF16, 128, 256, 64), Target::sm_90a());
        assert_eq!(why(&large, hopper, 8), None);
        let of = |problem: &Problem| why(problem, hopper, 8).unwrap_or_default();
        let (form, small) = ("no form for its dtypes", "at least 64 rows, 8 columns and 32 bytes");
        assert!(of(&Problem { acc: DType::F16, a: DType::F16, b: DType::F16, ..large.clone() }).contains(form));
        assert!(of(&problem(DType::F64, 128, 128, 64)).contains(form));
        assert!(of(&Problem { batch: vec![2], ..large.clone() }).contains("batched"));
        for [m, n, k] in [[32, 256, 64], [128, 4, 64], [128, 256, 8]] {
            assert!(of(&problem(DType::F16, m, n, k)).contains(small), "{m} {n} {k}");
        }
        assert!(why(&large, hopper, 2).is_some_and(|why| why.contains("four warps")));
        assert!(why(&large, Target::sm_89(), 8).is_some_and(|why| why.contains("no `wgmma`")));
    }

    #[test]
    fn columns_of_an_instruction_are_those_of_its_warp_group() {
        for (m, n, num_warps, columns) in [(128, 256, 8, 256), (64, 256, 8, 128), (256, 512, 8, 256), (64, 8, 4, 8)] {
            let problem = problem(DType::F16, m, n, 64);
            let (instruction, _) = choice(&problem, Target::sm_90a(), num_warps);
            assert_eq!(instruction, DotInstruction::Wgmma { columns }, "{problem:?}");
            let layout = problem.wgmma_layout(columns, problem.group_warps(num_warps)).unwrap();
            assert_eq!(wgmma_columns(&layout), Some(columns));
        }
    }
}
