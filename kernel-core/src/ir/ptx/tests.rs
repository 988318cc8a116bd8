use super::*;

fn ptx(text: &str) -> InlinePtx {
    InlinePtx { text: text.to_string(), pack: 1, pure: true }
}

fn error(text: &str) -> String {
    ptx(text).check_text().map_or_else(|error| error.message, |()| "accepted".to_string())
}

fn operands(text: &str, arguments: &[DType], results: &[DType]) -> String {
    let dts = |dtypes: &[DType]| dtypes.iter().map(|&dtype| Dt::Known(dtype)).collect::<Vec<_>>();
    let checked = ptx(text).check_operands(&dts(arguments), &dts(results));
    checked.map_or_else(|error| error.message, |()| "accepted".to_string())
}

#[test]
fn texts_that_ptx_would_not_be_are_refused() {
    for good in [
        "neg.f32 $0, $1;",
        "@p add.s32 $0, $1, $2; // half",
        "{ .reg .b32 a, b<3>; .reg .pred p; setp.lt.s32 p, $1, 0; @!p mov.b32 a, $1; mov.b32 b2, a; mov.b32 $0, b2; }",
        "mov.b64 {$0, $1}, $2; /* ; } */",
        "{ { .reg .b16 x; cvt.u16.u32 x, $1; cvt.u32.u16 $0, x; } }",
    ] {
        assert_eq!(error(good), "accepted", "{good}");
    }
    for (bad, why) in [
        ("", "there is no instruction in the text"),
        ("neg.f32 $0, $1", "`neg.f32` does not end with `;`"),
        ("{ neg.f32 $0, $1;", "a `{` without its `}`"),
        ("neg.f32 $0, $1; }", "a `}` without its `{`"),
        ("mov.b64 {$0, $1, $2;", "brackets of `mov.b64` do not match"),
        ("mov.b64 {$0, $1], $2;", "brackets of `mov.b64` do not match"),
        ("neg.f32 $, $1;", "`$` without a number"),
        ("$0 neg.f32;", "`$0` stands where an instruction begins"),
        ("+ neg.f32 $0, $1;", "`+` stands where an instruction begins"),
        (".reg .b32 t; mov.b32 $0, t;", "`.reg` outside of a block"),
        ("{ .reg .b32 t }", "a `.reg` that does not end"),
        ("{ .shared .b32 t; }", "the directive `.shared` does not stand inside instructions"),
        ("again: bra again;", "the label `again` stands outside of a block"),
        ("@; neg.f32 $0, $1;", "`@` without the name of a predicate"),
        ("neg.f32 $0, \"x\";", "`\"` does not stand in an instruction"),
        ("neg.f32 $0, \u{e9};", "PTX is ASCII, and 'é' is not"),
        ("neg.f32 $0, $1; /* x", "a comment does not end"),
    ] {
        assert_eq!(error(bad), why, "{bad}");
    }
}

#[test]
fn operands_are_those_of_the_values() {
    use DType::{Bool, F16, F64, I32, I64};
    assert_eq!(operands("add.s32 $0, $1, $2;", &[I32, I32], &[I32]), "accepted");
    assert_eq!(operands("neg.s32 $0, $1;", &[I32], &[I32, I32]), "nothing in the text writes the result `$1`");
    assert_eq!(operands("vote.sync.any.pred $0, $1;", &[I32], &[I32]), "accepted");
    let beyond = "the text names `$3`, but its operands are `$0` to `$2`";
    assert_eq!(operands("add.s32 $0, $1, $3;", &[I32, I32], &[I32]), beyond);
    assert_eq!(operands("mov.u32 $0, $1;", &[], &[I32]), "the text names `$1`, but its only operand is `$0`");
    assert_eq!(operands("mov.b32 $0, $2;", &[I32], &[I32, I32]), "nothing in the text writes the result `$1`");
    assert_eq!(
        operands("shl.b32 $1, $1, 2; mov.b32 $0, $1;", &[I32], &[I32]),
        "the text writes `$1`, which is an argument"
    );
    assert_eq!(operands("mov.b64 {$0, $1}, $1;", &[I64], &[I32]), "the text writes `$1`, which is an argument");
    assert_eq!(operands("mov.b64 {$0, $1}, $2;", &[F64], &[I32, I32]), "accepted");
    assert_eq!(operands("neg.f16 $0, $1;", &[F16], &[Bool]), "PTX has no truth values among its operands");
}

#[test]
fn registers_follow_from_dtypes_and_packs() {
    let of = |dtype, pack| {
        let registers = InlinePtx { pack, ..ptx("") }.registers(dtype).unwrap();
        (registers.register.letter(), registers.count, registers.elements)
    };
    assert_eq!((of(DType::I8, 1), of(DType::I8, 2), of(DType::U8, 4)), (('h', 1, 1), ('h', 1, 2), ('r', 1, 4)));
    assert_eq!((of(DType::F8E5M2, 8), of(DType::F16, 1), of(DType::BF16, 2)), (('r', 2, 4), ('h', 1, 1), ('r', 1, 2)));
    assert_eq!((of(DType::I16, 8), of(DType::U32, 2), of(DType::F32, 4)), (('r', 4, 2), ('r', 2, 1), ('f', 4, 1)));
    assert_eq!((of(DType::I64, 2), of(DType::F64, 1)), (('l', 2, 1), ('d', 1, 1)));
}

#[test]
fn what_reaches_beyond_registers_is_named() {
    let beyond = |text: &str| ptx(text).beyond_registers();
    for inside in [
        "add.rn.f32 $0, $1, 0f3F800000;",
        "{ .reg .pred p; setp.ne.u32 p, $1, 0; selp.b32 $0, 1, 0, p; }",
        "{ .reg .b32 %t<2>; mov.b32 %t1, $1; mov.b32 $0, %t1; }",
        "lop3.b32 $0, $1, $2, WARP_SZ, 0x96;",
    ] {
        assert_eq!(beyond(inside), None, "{inside}");
    }
    for (outside, what) in [
        ("ld.global.b32 $0, [$1];", "`ld.global.b32`"),
        ("st.shared::cta.b32 [$1], $2;", "`st.shared::cta.b32`"),
        ("mov.u32 $0, %laneid;", "`%laneid`"),
        ("mov.u64 $0, buffer;", "`buffer`"),
        ("{ .reg .b32 %t<2>; mov.b32 $0, %t2; }", "`%t2`"),
        ("{ .reg .b32 t; } mov.b32 $0, t;", "`t`"),
        ("bar.sync 0; mov.b32 $0, $1;", "`bar.sync`"),
        ("shfl.sync.bfly.b32 $0, $1, 1, 31, -1;", "`shfl.sync.bfly.b32`"),
        ("{ again: mov.b32 $0, $1; }", "the label `again`"),
        ("@p neg.s32 $0, $1;", "`p`"),
        ("exit;", "`exit`"),
    ] {
        assert_eq!(beyond(outside).as_deref(), Some(what), "{outside}");
    }
}
