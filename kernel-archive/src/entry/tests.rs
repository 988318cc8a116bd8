use super::*;
use crate::identity::tests::sample as identity;
use kernel_core::backend::nvidia::{MapSwizzle, TensorMap};
use kernel_core::ir::recipe::{Source, Step};
use kernel_core::ir::{BinaryOp, CmpOp};

/// An entry with something of everything.
pub(crate) fn sample() -> Entry {
    let param = ParamId::new;
    let mut conditions = LaunchConditions::default();
    let n = conditions.node(Node::Argument(param(2)));
    let fixed = conditions.node(Node::Fixed(i128::MIN, 1 << 100));
    let counter = conditions.node(Node::Counter(n, fixed, n));
    let bounds = [n, fixed, n];
    let sum = conditions.node(Node::Induction { start: counter, bounds, increment: fixed, after: true });
    conditions.require(Condition::Inside { offset: sum, buffer: param(0) });
    conditions.require(Condition::AtMost(n, counter, -1));
    conditions.require(Condition::Exact(sum, DType::I32));
    let step = |dtype, from| Step { dtype, from };
    let recipe = Recipe {
        slot: 1,
        base: param(0),
        offsets: vec![0],
        sizes: vec![1, 2],
        strides: vec![2, 0],
        steps: vec![
            step(DType::I64, Source::Const(-5)),
            step(DType::I32, Source::Arg(param(2))),
            step(DType::I64, Source::Binary(BinaryOp::Mul, 0, 0)),
            step(DType::Bool, Source::Compare(CmpOp::Lt, 0, 1)),
        ],
    };
    let map = TensorMap::new(param(5), &[64, 32], MapSwizzle::Bytes128);
    let abi = [AbiParam::Buffer(param(0)), AbiParam::Scalar(param(2), DType::I32), AbiParam::Length(param(1))];
    let abi =
        abi.into_iter().chain([AbiParam::ReportSlot, AbiParam::Shape(param(5), 1)]).chain(map.map(AbiParam::TensorMap));
    let bounds = SiteKind::Bounds { param: param(1), store: true };
    let code = Code {
        entry: "add".into(),
        shared_bytes: 1024,
        num_warps: 8,
        min_programs: Some(2),
        sets_registers: false,
        dependent_launch: true,
        abi: abi.collect(),
        nodes: conditions.nodes().to_vec(),
        conditions: conditions.conditions().to_vec(),
        sites: vec![
            Site { place: 3, atomic: true, kind: bounds },
            Site { place: 0, atomic: false, kind: SiteKind::Assert("n > 0, \u{e4}".into()) },
        ],
        names: ["x", "out", "n", "c", "none", "tensor"].map(String::from).to_vec(),
        loads: 5,
        made: vec![Made {
            param: param(5),
            name: "tensor".into(),
            place: 2,
            element: DType::F16,
            recipe,
            writes: true,
            nan: true,
        }],
    };
    let maker = Maker { runtime: "0.1.0".into(), compiler: "0.1.0, LLVM 22".into() };
    let ptx = ".version 8.0\n.target sm_90a\n".repeat(40);
    let texts = Texts { ptx, bound_ir: "kernel add".into(), report: "nothing".into() };
    let options =
        nvidia::Options { disabled_passes: vec!["unroll".into()], delays: Some(7), ..nvidia::Options::default() };
    let machine = vec![crate::machine::tests::sample(); 2];
    Entry { head: Head { identity: identity(), maker, options, code }, texts, machine }
}

#[test]
fn entries_are_read_as_they_were_written() {
    let entry = sample();
    let bytes = encode(&entry);
    assert_eq!(decode(&bytes), Ok(entry.clone()));
    assert_eq!(decode_head(&bytes), Ok(entry.head));
    assert!(bytes.len() < entry.texts.ptx.len(), "texts are packed: {} bytes", bytes.len());
}

/// Without a checksum in front of it: what is read is an entry or an error, and never a panic or a lot of memory.
#[test]
fn damaged_entries_do_not_panic() {
    let bytes = encode(&sample());
    for at in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            drop(decode(&changed));
        }
        assert!(decode(&bytes[..at]).is_err(), "cut at {at}");
    }
}

#[test]
fn numbers_that_name_nothing_are_refused() {
    let refused = |change: &dyn Fn(&mut Code)| {
        let mut entry = sample();
        change(&mut entry.head.code);
        decode(&encode(&entry)).is_err()
    };
    assert!(!refused(&|_| ()));
    assert!(refused(&|code| code.abi.push(AbiParam::Buffer(ParamId::new(6)))));
    assert!(refused(&|code| code.abi.push(AbiParam::Shape(ParamId::new(5), 5))));
    assert!(refused(&|code| code.nodes.truncate(2)));
    assert!(refused(&|code| code.nodes.swap(1, 3)));
    assert!(refused(&|code| code.made[0].recipe.slot = 32));
    assert!(refused(&|code| code.made[0].recipe.sizes.clear()));
    assert!(refused(&|code| code.num_warps = 0));
}
