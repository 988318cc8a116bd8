use super::verify;
use crate::ir::{Builder, ControlOp, DType, Def, Func, Op, Safety, Span, Ty, UnaryOp, ValueId};

fn messages(func: &Func) -> Vec<String> {
    verify(func).err().unwrap_or_default().into_iter().map(|d| d.message.into()).collect()
}

/// A kernel with two constants and their negations.
fn sample() -> Func {
    let mut func = Func::new("k", "k.rs", Safety::Safe);
    let body = func.body;
    let mut b = Builder::new(&mut func, body);
    for i in 0..2 {
        let c = b.one(Op::i32(i), &[], Span::UNKNOWN).unwrap();
        b.one(Op::unary(UnaryOp::Neg), &[c], Span::UNKNOWN).unwrap();
    }
    b.op(ControlOp::Return, &[], &[], Span::UNKNOWN).unwrap();
    func
}

#[test]
fn source_files_exist() {
    let mut func = sample();
    let dep = func.files.add("dep.rs").unwrap();
    func.ops[1].span = Span::new(1, 2, 3).in_file(dep);
    assert_eq!(messages(&func), [""; 0]);
    func.files = crate::ir::Files::new("k.rs");
    assert_eq!(messages(&func), ["a place names a source file or call that does not exist"]);
}

#[test]
fn calls_exist_and_come_before_those_in_them() {
    let none = "a place names a source file or call that does not exist";
    let mut func = sample();
    let call = func.files.add_call(Span::new(1, 2, 3)).unwrap();
    func.ops[1].span = Span::new(4, 5, 6).in_call(call);
    assert_eq!(messages(&func), [""; 0]);
    func.ops[1].span = Span::new(4, 5, 6).in_call(crate::ir::CallId::new(2));
    assert_eq!(messages(&func), [none]);
    func.files.add_call(Span::new(1, 2, 3).in_call(crate::ir::CallId::new(2))).unwrap();
    assert_eq!(messages(&func), [none]);
}

#[test]
fn a_sound_kernel_verifies() {
    assert_eq!(messages(&sample()), [""; 0]);
}

#[test]
fn broken_arenas_are_reported_and_never_panic() {
    type Breakage = (&'static str, fn(&mut Func));
    let breakages: [Breakage; 9] = [
        ("`neg`: an operand does not exist", |f| f.ops[1].operands[0] = ValueId::new(99)),
        ("`neg`: an operand is not defined here", |f| f.ops[1].operands[0] = ValueId::new(3)),
        ("an operation does not exist", |f| f.ops.truncate(4)),
        ("`const` stands in two places", |f| {
            let first = f.regions[0].ops[0];
            f.regions[0].ops.insert(1, first);
        }),
        ("a value that does not exist is defined", |f| f.values.truncate(3)),
        ("says that it is Arg", |f| f.values[0].def = Def::Arg(f.body, 0)),
        ("names a parameter that does not exist", |f| f.values[0].ty = Ty::ptr(crate::ir::ParamId::new(5))),
        ("the results have other types", |f| f.values[1].ty = Ty::scalar(DType::F32)),
        ("the kernel has no body", |f| f.regions.clear()),
    ];
    for (want, break_it) in breakages {
        let mut func = sample();
        break_it(&mut func);
        let found = messages(&func);
        assert!(found.iter().any(|m| m.contains(want)), "{want}: {found:?}");
    }
}
