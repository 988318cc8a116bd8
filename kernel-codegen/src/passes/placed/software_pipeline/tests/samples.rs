//! Kernels with loops for the tests of the pipeline, as text.

use kernel_core::interp::HostBuffer;

/// `c = a * b` for one program; `a` is `[M, K]`, `b` is `[K, N]`, or `[N, K]` if `transposed`.
pub(super) struct Matmul {
    pub m: i64,
    pub n: i64,
    pub k: i64,
    pub dtype: &'static str,
    pub transposed: bool,
    pub masked: bool,
    /// Whether pointers are carried and moved, instead of computed from the counter.
    pub bumps: bool,
    pub stages: u8,
}

impl Default for Matmul {
    fn default() -> Matmul {
        Matmul { m: 64, n: 32, k: 32, dtype: "f16", transposed: false, masked: true, bumps: false, stages: 0 }
    }
}

impl Matmul {
    pub fn text(&self) -> String {
        let Matmul { m, n, k, dtype: t, .. } = *self;
        // B as it lies in memory: rows and columns, and which of them is K.
        let (br, bc) = if self.transposed { (n, k) } else { (k, n) };
        let (k_axis, n_axis, k_shape, n_shape) = match self.transposed {
            true => (0, 1, format!("1, {k}"), format!("{n}, 1")),
            false => (1, 0, format!("{k}, 1"), format!("1, {n}")),
        };
        let attributes = if self.stages > 0 { format!(" {{stages = {}}}", self.stages) } else { String::new() };
        let mask = |name: &str, shape: &str, whole: &str| match self.masked {
            true => format!(
                "%l{name}: i32[{shape}] = splat %kk\n%m1{name}: bool[{shape}] = cmp.lt %k{name}i, %l{name}\n\
                 %m{name}: bool[{whole}] = broadcast %m1{name}\n%v{name}: {t}[{whole}] = load %q{name}, %m{name}\n"
            ),
            false => format!("%v{name}: {t}[{whole}] = load %q{name}\n"),
        };
        let dot = match self.transposed {
            true => format!(
                "%vt: {t}[{k}, {n}] = permute %vb {{perm = [1, 0]}}\n%d: f32[{m}, {n}] = dot %va, %vt, %acc {{precision = tf32}}\n"
            ),
            false => format!("%d: f32[{m}, {n}] = dot %va, %vb, %acc {{precision = tf32}}\n"),
        };
        let b_stride = if self.transposed { "%kk" } else { "%nn" };
        let head = format!(
            "kernel matmul \"matmul.rs\" unsafe bound {{
             param %a a: ptr {t} {{div = 16}}
             param %b b: ptr {t} {{div = 16}}
             param %c c: ptr_mut f32 {{div = 16}}
             param %kk k: i32 {{div = 16}}
             %zero: i32 = const 0
             %step: i32 = const {k}
             %nn: i32 = const {n}
             %rm: i32[{m}] = arange {{lo = 0, hi = {m}}}
             %rn: i32[{n}] = arange {{lo = 0, hi = {n}}}
             %rk: i32[{k}] = arange {{lo = 0, hi = {k}}}
             %m1: i32[{m}, 1] = expand_dims %rm {{axis = 1}}
             %n1: i32[{n_shape}] = expand_dims %rn {{axis = {n_axis}}}
             %ka: i32[1, {k}] = expand_dims %rk {{axis = 0}}
             %kb: i32[{k_shape}] = expand_dims %rk {{axis = {k_axis}}}
             %ks: i32[{m}, 1] = splat %kk
             %mk: i32[{m}, 1] = mul %m1, %ks
             %mkb: i32[{m}, {k}] = broadcast %mk
             %z: f32 = const 0.0
             %acc0: f32[{m}, {n}] = splat %z
             %as: *a[{m}, {k}] = splat %a
             %bs: *b[{br}, {bc}] = splat %b\n"
        );
        let offsets = |i: &str| {
            let (b_rows, b_columns) = if self.transposed { ("%n1", "%kbi") } else { ("%kbi", "%n1") };
            let rows_shape = format!("{br}, 1");
            format!(
                "%iav: i32[1, {k}] = splat {i}
                 %ibv: i32[{k_shape}] = splat {i}
                 %kai: i32[1, {k}] = add %ka, %iav
                 %kbi: i32[{k_shape}] = add %kb, %ibv
                 %kkb: i32[{m}, {k}] = broadcast %kai
                 %oa: i32[{m}, {k}] = add %mkb, %kkb
                 %sb: i32[{rows_shape}] = splat {b_stride}
                 %kn: i32[{rows_shape}] = mul {b_rows}, %sb
                 %knb: i32[{br}, {bc}] = broadcast %kn
                 %n1b: i32[{br}, {bc}] = broadcast {b_columns}
                 %ob: i32[{br}, {bc}] = add %knb, %n1b\n"
            )
        };
        let (before, header, inside, end) = if self.bumps {
            let before = offsets("%zero")
                + &format!(
                    "%pa0: *a[{m}, {k}] = add_ptr %as, %oa
                     %pb0: *b[{br}, {bc}] = add_ptr %bs, %ob
                     %da: i32[{m}, {k}] = splat %step
                     %bstep: i32 = mul %step, {}
                     %db: i32[{br}, {bc}] = splat %bstep\n",
                    if self.transposed { "%one" } else { "%nn" }
                );
            let before = format!("%one: i32 = const 1\n{before}");
            let header = format!(
                "%sum: f32[{m}, {n}], %x: *a[{m}, {k}], %y: *b[{br}, {bc}] = for %zero, %kk, %step, %acc0, %pa0, %pb0{attributes} \
                 (%i: i32, %acc: f32[{m}, {n}], %qa: *a[{m}, {k}], %qb: *b[{br}, {bc}]) {{\n"
            );
            let inside = format!(
                "%na: *a[{m}, {k}] = add_ptr %qa, %da
                 %nb: *b[{br}, {bc}] = add_ptr %qb, %db
                 %iax: i32[1, {k}] = splat %i
                 %ibx: i32[{k_shape}] = splat %i
                 %kax: i32[1, {k}] = add %ka, %iax
                 %kbx: i32[{k_shape}] = add %kb, %ibx\n"
            );
            let masks = (mask("a", &format!("1, {k}"), &format!("{m}, {k}"))
                + &mask("b", &k_shape, &format!("{br}, {bc}")))
                .replace("%kai,", "%kax,")
                .replace("%kbi,", "%kbx,");
            (before, header, inside + &masks, "yield %d, %na, %nb\n")
        } else {
            let header = format!(
                "%sum: f32[{m}, {n}] = for %zero, %kk, %step, %acc0{attributes} (%i: i32, %acc: f32[{m}, {n}]) {{\n"
            );
            let inside = offsets("%i")
                + &format!("%qa: *a[{m}, {k}] = add_ptr %as, %oa\n%qb: *b[{br}, {bc}] = add_ptr %bs, %ob\n")
                + &mask("a", &format!("1, {k}"), &format!("{m}, {k}"))
                + &mask("b", &k_shape, &format!("{br}, {bc}"));
            (String::new(), header, inside, "yield %d\n")
        };
        let tail = format!(
            "}}
             %nm: i32[{m}, 1] = splat %nn
             %mn: i32[{m}, 1] = mul %m1, %nm
             %mnb: i32[{m}, {n}] = broadcast %mn
             %cn: i32[1, {n}] = expand_dims %rn {{axis = 0}}
             %cnb: i32[{m}, {n}] = broadcast %cn
             %oc: i32[{m}, {n}] = add %mnb, %cnb
             %cs: *c[{m}, {n}] = splat %c
             %cp: *c[{m}, {n}] = add_ptr %cs, %oc
             store %cp, %sum
             return
             }}\n"
        );
        head + &before + &header + &inside + &dot + end + &tail
    }

    /// Small integers, so that sums are exact in any order, for `iterations` whole iterations and `more` columns.
    pub fn buffers(&self, total: i64) -> Vec<HostBuffer> {
        let values = |count: i64, seed: i64| (0..count).map(move |i| ((i * 7 + seed) % 13 - 6) as f32);
        let buffer = |count: i64, seed: i64| -> HostBuffer {
            match self.dtype {
                "f32" => values(count, seed).collect::<Vec<f32>>().into(),
                _ => values(count, seed).map(half::f16::from_f32).collect::<Vec<half::f16>>().into(),
            }
        };
        let slack = 64;
        let zeros = vec![f32::NAN; (self.m * self.n) as usize];
        vec![buffer(self.m * total + slack, 3), buffer(self.n * total + slack, 5), zeros.into()]
    }
}

/// `c = a * b` by blocks of tensors, for `tiles` tiles of columns one after the other.
pub(super) fn tensors(nested: bool) -> String {
    let (before, after) = if nested {
        ("for %zero, %tiles, %one (%tile: i32) {\n%n0: i32 = mul %tile, %thirty_two\n", "yield\n}\n")
    } else {
        ("%n0: i32 = const 0\n", "")
    };
    format!(
        "kernel tensors \"tensors.rs\" unsafe bound {{
         param %a a: desc f16[64, 32] {{div = 16, stride_div = 8}}
         param %b b: desc f16[32, 32] {{div = 16, stride_div = 8}}
         param %c c: ptr_mut f32 {{div = 16}}
         param %kk k: i32 {{div = 16}}
         param %tiles tiles: i32
         %zero: i32 = const 0
         %one: i32 = const 1
         %thirty_two: i32 = const 32
         %z: f32 = const 0.0
         %acc0: f32[64, 32] = splat %z
         {before}
         %sum: f32[64, 32] = for %zero, %kk, %thirty_two, %acc0 (%i: i32, %acc: f32[64, 32]) {{
           %va: f16[64, 32] = desc_load %a, %zero, %i
           %vb: f16[32, 32] = desc_load %b, %i, %n0
           %d: f32[64, 32] = dot %va, %vb, %acc {{precision = tf32}}
           yield %d
         }}
         %rm: i32[64] = arange {{lo = 0, hi = 64}}
         %rn: i32[32] = arange {{lo = 0, hi = 32}}
         %m1: i32[64, 1] = expand_dims %rm {{axis = 1}}
         %n1: i32[1, 32] = expand_dims %rn {{axis = 0}}
         %width: i32 = const 128
         %ws: i32[64, 1] = splat %width
         %mw: i32[64, 1] = mul %m1, %ws
         %mb: i32[64, 32] = broadcast %mw
         %nb: i32[64, 32] = broadcast %n1
         %o: i32[64, 32] = add %mb, %nb
         %n0s: i32[64, 32] = splat %n0
         %o1: i32[64, 32] = add %o, %n0s
         %cs: *c[64, 32] = splat %c
         %cp: *c[64, 32] = add_ptr %cs, %o1
         store %cp, %sum
         {after}
         return
         }}\n"
    )
}

/// The same with blocks of a leading dimension of one element, which the kernel drops; the inner loop may have the mark
/// of warp specialisation.
pub(super) fn sheets(nested: bool, marked: bool) -> String {
    let text = tensors(nested)
        .replace("desc f16[64, 32]", "desc f16[1, 64, 32]")
        .replace("desc f16[32, 32]", "desc f16[1, 32, 32]")
        .replace(
            "%va: f16[64, 32] = desc_load %a, %zero, %i",
            "%sa: f16[1, 64, 32] = desc_load %a, %zero, %zero, %i\n%va: f16[64, 32] = reshape %sa {shape = [64, 32]}",
        )
        .replace(
            "%vb: f16[32, 32] = desc_load %b, %i, %n0",
            "%sb: f16[1, 32, 32] = desc_load %b, %zero, %i, %n0\n%vb: f16[32, 32] = reshape %sb {shape = [32, 32]}",
        );
    let mark = if marked { "{warp_specialize = true} " } else { "" };
    text.replace("%acc0 (%i: i32", &format!("%acc0 {mark}(%i: i32"))
}

/// Sums the rows of `x`, from both of two places, for a loop with that attribute.
pub(super) fn stream(attribute: &str, checked: bool) -> String {
    let mask = if checked {
        "%mask: bool[256] = check_bounds %o, %len, %inside {param = 0, store = false}"
    } else {
        "%mask: bool[256] = and %inside, %inside"
    };
    format!(
        "kernel stream \"stream.rs\" unsafe bound {{
         param %x x: ptr f32 {{div = 16}}
         param %out out: ptr_mut f32 {{div = 16}}
         param %n n: i32 {{div = 16}}
         param %len len: length x
         %zero: i32 = const 0
         %width: i32 = const 256
         %lanes: i32[256] = arange {{lo = 0, hi = 256}}
         %z: f32 = const 0.0
         %acc0: f32[256] = splat %z
         %sum: f32[256] = for %zero, %n, %width, %acc0{attribute} (%i: i32, %acc: f32[256]) {{
           %is: i32[256] = splat %i
           %o: i32[256] = add %lanes, %is
           %ns: i32[256] = splat %n
           %inside: bool[256] = cmp.lt %o, %ns
           {mask}
           %xs: *x[256] = splat %x
           %p: *x[256] = add_ptr %xs, %o
           %v: f32[256] = load %p, %mask
           %s: f32[256] = add %acc, %v
           yield %s
         }}
         %os: *out[256] = splat %out
         %q: *out[256] = add_ptr %os, %lanes
         store %q, %sum
         return
         }}\n"
    )
}

/// Two products per iteration, the second of what the first gives: the shape of attention.
pub(super) fn attention() -> String {
    "kernel attention \"attention.rs\" unsafe bound {
     param %k k: ptr f16 {div = 16}
     param %v v: ptr f16 {div = 16}
     param %out out: ptr_mut f32 {div = 16}
     param %n n: i32 {div = 16}
     %zero: i32 = const 0
     %step: i32 = const 32
     %rq: i32[64] = arange {lo = 0, hi = 64}
     %rk: i32[32] = arange {lo = 0, hi = 32}
     %q1: i32[64, 1] = expand_dims %rq {axis = 1}
     %k1: i32[32, 1] = expand_dims %rk {axis = 1}
     %c1: i32[1, 32] = expand_dims %rk {axis = 0}
     %w: i32 = const 32
     %wq: i32[64, 1] = splat %w
     %wk: i32[32, 1] = splat %w
     %oq: i32[64, 1] = mul %q1, %wq
     %oqb: i32[64, 32] = broadcast %oq
     %cb: i32[64, 32] = broadcast %c1
     %qo: i32[64, 32] = add %oqb, %cb
     %ks0: *k[64, 32] = splat %k
     %qp: *k[64, 32] = add_ptr %ks0, %qo
     %q: f16[64, 32] = load %qp
     %z: f32 = const 0.0
     %acc0: f32[64, 32] = splat %z
     %half: f32 = const 0.5
     %sum: f32[64, 32] = for %zero, %n, %step, %acc0 (%i: i32, %acc: f32[64, 32]) {
       %is: i32[32, 1] = splat %i
       %row: i32[32, 1] = add %k1, %is
       %ro: i32[32, 1] = mul %row, %wk
       %rob: i32[32, 32] = broadcast %ro
       %ccb: i32[32, 32] = broadcast %c1
       %o: i32[32, 32] = add %rob, %ccb
       %ks: *k[32, 32] = splat %k
       %kp: *k[32, 32] = add_ptr %ks, %o
       %kt: f16[32, 32] = load %kp
       %kk: f16[32, 32] = permute %kt {perm = [1, 0]}
       %s: f32[64, 32] = dot %q, %kk, %acc0 {precision = tf32}
       %p: f16[64, 32] = cast %s {to = f16}
       %vs: *v[32, 32] = splat %v
       %vp: *v[32, 32] = add_ptr %vs, %o
       %vt: f16[32, 32] = load %vp
       %alpha: f32[64, 32] = splat %half
       %scaled: f32[64, 32] = mul %acc, %alpha
       %d: f32[64, 32] = dot %p, %vt, %scaled {precision = tf32}
       yield %d
     }
     %os: *out[64, 32] = splat %out
     %op: *out[64, 32] = add_ptr %os, %qo
     store %op, %sum
     return
     }\n"
    .to_string()
}
