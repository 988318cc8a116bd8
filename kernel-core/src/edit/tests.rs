use super::*;
use crate::ir::{BinaryOp, ControlOp, DType, Func, Literal, Op, OpId, Span};
use crate::text::{parse, print};
use crate::verify::verify;

/// A loop that adds up, in a branch.
fn kernel() -> Func {
    let text = r#"kernel k "k.rs" unsafe bound {
  param %p p: ptr_mut i32
  param %n n: i32
  %zero: i32 = const 0
  %one: i32 = const 1
  %c: bool = cmp.lt %zero, %n
  if %c {
    %s: i32 = for %zero, %n, %one, %zero (%i: i32, %acc: i32) {
      %t: i32 = add %acc, %i
      %u: i32 = add %t, %t
      yield %u
    }
    store %p, %s
    yield
  } else {
    yield
  }
  return
}
"#;
    let func = parse(text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(verify(&func), Ok(()));
    func
}

fn named(func: &Func, name: &str) -> OpId {
    ops_in_order(func).into_iter().find(|&id| func.op(id).op.name() == name).expect("an operation of that name")
}

#[test]
fn a_structure_knows_what_is_around_what() {
    let func = kernel();
    let structure = Structure::new(&func);
    assert_eq!(structure.order(), ops_in_order(&func));
    let (branch, around, add) = (named(&func, "if"), named(&func, "for"), named(&func, "add"));
    assert_eq!(structure.around(add).collect::<Vec<_>>(), [around, branch]);
    assert_eq!(structure.around(branch).next(), None);
    let body = func.op(around).regions[0];
    assert_eq!((structure.owner(body), structure.region_of(add)), (Some(around), Some(body)));
    assert_eq!((structure.depth(body), structure.owner(func.body)), (2, None));
    assert!(structure.encloses(func.body, body) && structure.encloses(body, body));
    assert!(!structure.encloses(body, func.body) && !structure.encloses(func.op(branch).regions[1], body));
    assert_eq!((structure.extent(around), structure.extent(add)), (4..8, 5..6));
}

#[test]
fn a_value_that_is_an_operand_twice_is_used_twice() {
    let func = kernel();
    let uses = Uses::new(&func);
    let add = named(&func, "add");
    let (twice, once) = (func.op(add).results[0], func.op(named(&func, "for")).results[0]);
    assert_eq!((uses.of(twice).len(), uses.only(twice)), (2, None));
    assert_eq!(uses.only(once), Some(named(&func, "store")));
    let inside = Uses::within(&func, func.op(named(&func, "for")).regions[0]);
    assert_eq!((inside.of(twice).len(), inside.of(once).len()), (2, 0));
}

#[test]
fn operations_go_where_they_are_put() {
    let mut func = kernel();
    let body = func.body;
    let number = |func: &mut Func, number: i32| {
        let mut ops = Vec::new();
        Cursor::new(func, &mut ops, "test").i32(number).expect("a number");
        ops
    };
    let branch = named(&func, "if");
    let places = [Place::Start(body), Place::Before(body, branch), Place::After(body, branch), Place::End(body)];
    for (index, place) in (10..).zip(places) {
        let ops = number(&mut func, index);
        splice(&mut func, place, ops);
    }
    let first = func.region(body).ops[0];
    let instead = number(&mut func, 14);
    splice(&mut func, Place::Instead(body, first), instead);
    let numbers: Vec<i128> = func
        .region_ops(body)
        .filter_map(|(_, operation)| match operation.op {
            Op::Create(crate::ir::CreateOp::Const { value: Literal::Int(value), .. }) => Some(value),
            _ => None,
        })
        .collect();
    assert_eq!(numbers, [14, 0, 1, 11, 12, 13]);
    assert_eq!(verify(&func), Ok(()), "{}", print(&func));
}

#[test]
fn what_does_not_fit_is_an_error_that_names_pass_operation_and_line() {
    let mut func = kernel();
    let (pointer, number) = (func.params[0].value, func.params[1].value);
    let mut ops = Vec::new();
    let span = Span { line: 3, column: 5, ..Span::UNKNOWN };
    let mut cursor = Cursor::new(&mut func, &mut ops, "test").at(span);
    let error = cursor.binary(BinaryOp::Add, pointer, number).expect_err("a sum of a pointer and a number");
    assert_eq!((error.pass, error.op, error.span), ("test", "add", span));
    let text = error.to_string();
    assert!(text.starts_with("a mistake in pass `test`: it wrote a wrong `add`: "), "{text}");
    assert!(text.ends_with("in kernel `k` at k.rs:3:5"), "{text}");
    cursor.effect(Op::i32(1), &[]).expect_err("a number has a result");
    cursor.value(ControlOp::Yield, &[]).expect_err("`yield` has none");
}

#[test]
fn an_operation_turns_into_one_with_the_same_results_only() {
    let mut func = kernel();
    let add = named(&func, "add");
    let operands = func.op(add).operands.clone();
    let mut ops = Vec::new();
    let mut cursor = Cursor::new(&mut func, &mut ops, "test");
    assert_eq!(cursor.turn(add, Op::binary(BinaryOp::Mul), &operands), Ok(()));
    cursor.turn(add, Op::cast(DType::I64), &operands[..1]).expect_err("another type");
    assert_eq!((func.op(add).op.name(), ops), ("mul", vec![add]));
    assert_eq!(verify(&func), Ok(()));
}
