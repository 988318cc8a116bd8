//! Kernels as `#[kernel]` embeds them, with the launchers that it makes.

use kernel_runtime::launch::{
    Call, CompileRequest, CompiledKernel, Kernel, KernelSource, PtrArg, PtrMutArg, SourceFile, Target,
};
use kernel_runtime::{DType, Num, Result};

/// A kernel of its own, so that its counters are not shared between tests.
pub fn leak(source: KernelSource) -> &'static Kernel {
    Box::leak(Box::new(Kernel::new(source)))
}

pub const ADD: KernelSource = KernelSource {
    name: "add",
    module: "tests",
    files: &[SourceFile {
        name: "src/add.rs",
        lines: &[
            (4, "    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);"),
            (5, "    let mask = offsets < n;"),
            (6, "    let sum = load(x + offsets, mask = mask) + load(y + offsets, mask = mask);"),
            (7, "    store(out + offsets, sum, mask = mask);"),
        ],
    }],
    ir: r#"kernel add "src/add.rs" safe generic {
        dtype T: Num
        const BLOCK: usize
        param %x x: ptr T @3:5+1
        param %y y: ptr T @3:5+1
        param %out out: ptr_mut T @3:5+3
        param %n n: i32 @3:5+1
        %pid: i32 = program_id {axis = 0} @4:19+13
        %block: i32 = const_expr BLOCK @4:35+5
        %start: i32 = mul %pid, %block @4:19+21
        %start_tile: i32[BLOCK] = splat %start @4:19+40
        %lanes: i32[BLOCK] = arange {lo = 0, hi = BLOCK} @4:43+16
        %offsets: i32[BLOCK] = add %start_tile, %lanes @4:19+40
        %n_tile: i32[BLOCK] = splat %n @5:26+1
        %mask: bool[BLOCK] = cmp.lt %offsets, %n_tile @5:16+11
        %xs: *x[BLOCK] = splat %x @6:20+1
        %xp: *x[BLOCK] = add_ptr %xs, %offsets @6:20+11
        %a: T[BLOCK] = load %xp, %mask @6:15+31
        %ys: *y[BLOCK] = splat %y @6:50+1
        %yp: *y[BLOCK] = add_ptr %ys, %offsets @6:50+11
        %b: T[BLOCK] = load %yp, %mask @6:45+31
        %sum: T[BLOCK] = add %a, %b @6:15+61
        %outs: *out[BLOCK] = splat %out @7:11+3
        %outp: *out[BLOCK] = add_ptr %outs, %offsets @7:11+13
        store %outp, %sum, %mask @7:5+38
        return
    }"#,
    num_warps: None,
    num_stages: None,
    max_registers: None,
};

/// The constexprs of [`ADD`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(non_snake_case)]
pub struct AddConsts {
    pub BLOCK: usize,
}

impl AddConsts {
    pub fn call<'a, T: Num>(
        self,
        kernel: &'static Kernel,
        x: impl PtrArg<'a, T>,
        y: impl PtrArg<'a, T>,
        out: impl PtrMutArg<'a, T>,
        n: i32,
    ) -> Call<'a, AddConsts> {
        Call::new(kernel, self).dtype::<T>().constant(self.BLOCK as i64).ptr(x).ptr(y).ptr_mut(out).scalar(n)
    }

    pub fn compile<T: DType>(self, kernel: &'static Kernel, target: Target) -> Result<CompiledKernel> {
        CompileRequest::<()>::new(kernel).dtype::<T>().constant(self.BLOCK as i64).compile(target)
    }
}

static SHARED_ADD: Kernel = Kernel::new(ADD);

/// The launcher of [`ADD`].
pub fn add<'a, T: Num, const BLOCK: usize>(
    x: impl PtrArg<'a, T>,
    y: impl PtrArg<'a, T>,
    out: impl PtrMutArg<'a, T>,
    n: i32,
) -> Call<'a, AddConsts> {
    AddConsts { BLOCK }.call(&SHARED_ADD, x, y, out, n)
}

/// `out[program_id(0)] = x[program_id(0) * stride] * eps`, without a mask.
pub const GATHER: KernelSource = KernelSource {
    name: "gather",
    module: "tests",
    files: &[SourceFile {
        name: "src/gather.rs",
        lines: &[(4, "    let value = load(x + offset) * eps;"), (5, "    store(out + pid, value);")],
    }],
    ir: r#"kernel gather "src/gather.rs" safe generic {
        param %x x: ptr f32 @2:5+1
        param %out out: ptr_mut f32 @2:9+3
        param %stride stride: i64 @2:14+6
        param %eps eps: const f32 @2:22+3
        %pid: i32 = program_id {axis = 0} @3:13+13
        %row: i64 = cast %pid @3:13+20
        %offset: i64 = mul %row, %stride @3:13+30
        %xp: *x = add_ptr %x, %offset @4:22+10
        %a: f32 = load %xp @4:17+16
        %scaled: f32 = mul %a, %eps @4:17+22
        %outp: *out = add_ptr %out, %pid @5:11+9
        store %outp, %scaled @5:5+25
        return
    }"#,
    num_warps: None,
    num_stages: None,
    max_registers: None,
};

/// The launcher of [`GATHER`].
pub fn gather<'a>(
    kernel: &'static Kernel,
    x: impl PtrArg<'a, f32>,
    out: impl PtrMutArg<'a, f32>,
    stride: i64,
    eps: f32,
) -> Call<'a, ()> {
    Call::new(kernel, ()).ptr(x).ptr_mut(out).scalar(stride).const_scalar(eps)
}

/// Asserts that `program_id(1) < limit`, then counts itself in `out[0]`.
pub const COUNT: KernelSource = KernelSource {
    name: "count",
    module: "tests",
    files: &[SourceFile { name: "src/count.rs", lines: &[(4, "    assert!(program_id(1) < limit, \"too many\");")] }],
    ir: r#"kernel count "src/count.rs" safe generic {
        param %out out: ptr_mut i32 @2:9+3
        param %limit limit: i32 @2:14+5
        %pid: i32 = program_id {axis = 1} @3:13+13
        %fits: bool = cmp.lt %pid, %limit @3:13+20
        assert %fits {message = "too many"} @4:5+30
        %one: i32 = const 1 @5:20+1
        %before: i32 = atomic_rmw %out, %one {op = add, order = relaxed, scope = device} @5:5+20
        return
    }"#,
    num_warps: Some(4),
    num_stages: None,
    max_registers: None,
};

/// The launcher of [`COUNT`].
pub fn count<'a>(kernel: &'static Kernel, out: impl PtrMutArg<'a, i32>, limit: i32) -> Call<'a, ()> {
    Call::new(kernel, ()).ptr_mut(out).scalar(limit)
}

/// As if a function of another crate had been inlined: it loads `x[at]`, asserts that it
/// is positive, and adds the numbers below `N`.
pub const INLINED: KernelSource = KernelSource {
    name: "inlined",
    module: "tests",
    files: &[
        SourceFile { name: "src/inlined.rs", lines: &[(7, "    store(out, sum_from::<N>(x, at));")] },
        SourceFile {
            name: "dep/src/lib.rs",
            lines: &[(7, "    let numbers = arange(0, N);"), (8, "    let value = load(x + at);")],
        },
    ],
    ir: r#"kernel inlined "src/inlined.rs" safe generic {
        file f1 = "dep/src/lib.rs"
        const N: usize
        param %x x: ptr i32 @2:9+1
        param %out out: ptr_mut i32 @2:14+3
        param %at at: i32 @2:20+2
        %tile: i32[N] = arange {lo = 0, hi = N} @f1:7:19+12
        %from: *x = add_ptr %x, %at @f1:8:22+6
        %value: i32 = load %from @f1:8:17+12
        %zero: i32 = const 0 @f1:9:21+1
        %fits: bool = cmp.ge %value, %zero @f1:9:13+9
        assert %fits {message = "negative"} @f1:9:5+30
        %sum: i32 = reduce %tile {axis = 0} (%l: i32, %r: i32) {
            %s: i32 = add %l, %r
            yield %s
        }
        %both: i32 = add %value, %sum
        store %out, %both @7:5+33
        return
    }"#,
    num_warps: Some(1),
    num_stages: None,
    max_registers: None,
};

/// The launcher of [`INLINED`].
pub fn inlined<'a>(
    kernel: &'static Kernel,
    x: impl PtrArg<'a, i32>,
    out: impl PtrMutArg<'a, i32>,
    at: i32,
    n: i64,
) -> Call<'a, ()> {
    Call::new(kernel, ()).constant(n).ptr(x).ptr_mut(out).scalar(at)
}
