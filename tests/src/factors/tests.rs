//! The check sees what it is for, and nothing else.

use super::{compare, ptx, sass};

const PTX: &str = "
.visible .entry k(
	.param .u64 k_param_0
)
{
	.reg .b32 %x<4>;
	add.s32 %x0, %r1, 1;
	add.s32 %x1, %r1, 2;
	add.s32 %x2, %r1, 3;
	add.s32 %x3, %r1, 4;
$L_1:
	wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%s0, %s1}, {%x0, %x1, %x2, %x3}, %d1, 0, 1, 1, 0;
	@%q0 bra $L_2;
	{
	.reg .pred over;
again:
	mbarrier.try_wait.parity.shared::cta.b64 over, [%r3], %r2;
	@!over bra.uni again;
}
$L_2:
	cvt.rn.f16x2.f32 %p0, %s1, %s0;
	mov.b32 %p1, %p0;
	mov.b32 %p2, %p0;
	mov.b32 %p3, %p0;
	wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%o0, %o1}, {%p0, %p1, %p2, %p3}, %d1, 1, 1, 1, 1;
	@%q1 bra $L_1;
	ret;
}
";

/// Code of [`PTX`] with the factors of its products in the registers from `x` and from `p` on; `end` ends each
/// iteration.
fn listing(x: u32, p: u32, end: &str) -> String {
    let define = |first: u32, name: &str| {
        (first..first + 4)
            .map(|register| format!("        /*0010*/ {name} R{register}, R1, R1 ;\n"))
            .collect::<String>()
    };
    format!(
        "k:
.text.k:
{}.L_x_1:
        /*0100*/                   HGMMA.64x16x16.F32 R24, R{x}, gdesc[UR8], RZ, !UPT, gsb0 ;
        /*0110*/               @P0 BRA `(.L_x_2) ;
        /*0120*/                   FADD R24, R24, 1 ;
.L_x_2:
{}        /*0200*/                   HGMMA.64x16x16.F32 R32, R{p}, gdesc[UR8].tnspB, R32, gsb0 ;
{end}        /*0210*/              @!P1 BRA `(.L_x_1) ;
        /*0220*/                   EXIT ;
",
        define(x, "VIADD"),
        define(p, "F2FP.F16.F32.PACK_AB"),
    )
}

fn check(ptx: &str, listing: &str) -> Result<usize, String> {
    Ok(compare(&ptx::read(ptx)?, &sass::read(listing)?)?.carried)
}

#[test]
fn registers_of_their_own_are_right() {
    assert_eq!(check(PTX, &listing(40, 44, "")), Ok(0));
}

#[test]
fn a_factor_that_the_next_product_overwrites_is_found() {
    for p in [37, 40, 43] {
        let message = check(PTX, &listing(40, p, "")).expect_err("one register at least is shared");
        assert!(message.contains("HGMMA.64x16x16.F32 R24, R40") && message.contains("F2FP"), "{message}");
    }
}

#[test]
fn a_factor_that_comes_back_from_the_stack_is_right_and_another_one_is_not() {
    let move_all = |name: &str, place: u32| {
        let one = |i: u32| {
            let (register, address) = (format!("R{}", 40 + i), format!("[R1+{:#x}]", place + 4 * i));
            let operands = if name == "STL" { [address, register] } else { [register, address] };
            format!("        /*0300*/ {name} {}, {} (*\"SpillRefill\"*) ;\n", operands[0], operands[1])
        };
        (0..4).map(one).collect::<String>()
    };
    let stored = listing(40, 40, &move_all("LDL", 16)).replacen(".L_x_1:", &(move_all("STL", 16) + ".L_x_1:"), 1);
    assert_eq!(check(PTX, &stored), Ok(0));
    let lost = stored.replacen("(.L_x_2) ;\n", &format!("(.L_x_2) ;\n{}", move_all("STL", 16).replace("R4", "R3")), 1);
    assert!(check(PTX, &lost).is_err(), "its place is given away");
}

#[test]
fn a_factor_that_the_loop_carries_is_right() {
    let carried = PTX.replace("\t@%q1 bra $L_1;", "\tld.shared.b32 %x0, [%r7];\n\t@%q1 bra $L_1;");
    let load = "        /*0300*/ LDS R40, [R7] ;\n";
    assert_eq!(check(&carried, &listing(40, 44, load)), Ok(1));
    assert!(check(PTX, &listing(40, 44, load)).is_err(), "the PTX does not carry it");
}

#[test]
fn both_ways_of_a_condition_write_one_value() {
    let either = "        /*0300*/ @P2 LDS R40, [R7] ;\n        /*0310*/ @!P2 LDS R40, [R8] ;\n";
    let inside = listing(40, 44, "").replacen(".L_x_1:\n", &format!(".L_x_1:\n{either}"), 1);
    assert_eq!(check(PTX, &inside), Ok(0), "no way leads around both");
    let one = listing(40, 44, "").replacen(".L_x_1:\n", ".L_x_1:\n        /*0300*/ @P2 LDS R40, [R7] ;\n", 1);
    assert!(check(PTX, &one).is_err(), "one way leads around it");
}

#[test]
fn what_is_not_known_is_refused() {
    let strange = listing(40, 44, "        /*0300*/ FROB R3, R4 ;\n");
    assert_eq!(
        check(PTX, &strange),
        Err("an instruction of the hardware that is not known here: `FROB R3, R4`".into())
    );
    let strange = PTX.replace("\tret;", "\tfrob.b32 %r1, %r2;\n\tret;");
    assert!(ptx::read(&strange).is_err_and(|message| message.contains("frob.b32")));
    let nowhere = listing(40, 44, "").replace("`(.L_x_2)", "`(.L_x_7)");
    assert!(check(PTX, &nowhere).is_err_and(|message| message.contains("a jump to nowhere")));
}
