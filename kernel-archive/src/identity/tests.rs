use super::*;

pub(crate) fn sample() -> Identity {
    let element = DType::F32;
    Identity {
        kernel: "add".into(),
        ir: [7; 32],
        dtypes: vec![element],
        constants: vec![1024],
        params: vec![
            Param::Buffer { element, mutable: false, alignment: 16, len_divisor: 16 },
            Param::Buffer { element, mutable: true, alignment: 16, len_divisor: 8 },
            Param::Scalar { element: DType::I32, divisor: 16, one: false },
            Param::Const { element, bits: 5 },
            Param::Omitted { element },
            tensor([true; 4]),
        ],
        options: Options::default(),
        safe: true,
        checks: Checks::AtLaunch,
        target: "sm_90a".into(),
    }
}

fn tensor([aligned, strides, rows, copies]: [bool; 4]) -> Param {
    Param::Tensor { element: DType::F16, mutable: false, rank: 2, nan: false, aligned, strides, rows, copies }
}

/// Identities that differ from the sample in one thing each.
fn others() -> Vec<Identity> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Identity)| {
        let mut other = sample();
        change(&mut other);
        all.push(other);
    };
    with(&|it| it.kernel = "sub".into());
    with(&|it| it.ir[31] = 8);
    with(&|it| it.dtypes = vec![DType::F16]);
    with(&|it| it.dtypes.push(DType::F32));
    with(&|it| it.constants[0] = 512);
    with(&|it| it.constants.push(0));
    with(&|it| it.options.num_warps = Some(4));
    with(&|it| it.options.num_stages = Some(4));
    with(&|it| it.options.max_registers = Some(4));
    with(&|it| it.options.dependent_launch = true);
    with(&|it| it.options.delays = Some(0));
    with(&|it| it.options.line_info = true);
    with(&|it| it.options.rough_tensors = 1);
    with(&|it| it.safe = false);
    with(&|it| it.checks = Checks::EveryAccess);
    with(&|it| it.target = "sm_80".into());
    with(&|it| it.params.truncate(5));
    with(&|it| it.params[3] = Param::Const { element: DType::F32, bits: 6 });
    with(&|it| it.params[4] = Param::Omitted { element: DType::F16 });
    with(&|it| it.params[0] = Param::Buffer { element: DType::F32, mutable: true, alignment: 16, len_divisor: 16 });
    with(&|it| it.params[2] = Param::Scalar { element: DType::I64, divisor: 16, one: false });
    all
}

#[test]
fn keys_differ_by_everything() {
    let mut keys: Vec<Key> = others().iter().map(|other| other.key("")).collect();
    keys.extend([sample().key(""), sample().key("another compiler"), sample().for_all_lengths().key("")]);
    for (index, key) in keys.iter().enumerate() {
        assert_eq!(keys.iter().position(|other| other == key), Some(index));
    }
    assert_eq!(sample().key("a"), sample().key("a"));
}

#[test]
fn code_for_rough_tensors_serves_smooth_ones() {
    let rough = |rough_tensors| {
        let mut identity = sample();
        identity.options.rough_tensors = rough_tensors;
        identity
    };
    for (own, wanted, serves) in [(0b11, 0, true), (0b11, 0b10, true), (0b11, 0b11, true), (0b10, 0b01, false)] {
        assert_eq!(rough(own).serves(&rough(wanted)), serves, "{own:b} for {wanted:b}");
        assert!(own == wanted || !rough(wanted).serves(&rough(own)), "{wanted:b} for {own:b}");
    }
    let facts = [0b11, 0b10, 0].map(|bits| rough(bits).facts());
    assert!(facts.is_sorted_by(|a, b| a < b), "of those that serve, the one with most smooth tensors: {facts:?}");
    let mut other = rough(0b11);
    other.options.num_warps = Some(4);
    assert!(!other.serves(&rough(0b01)), "the other options must be the same");
}

#[test]
fn only_what_takes_less_for_granted_serves() {
    assert!(sample().serves(&sample()));
    assert!(sample().for_all_lengths().serves(&sample()) && !sample().serves(&sample().for_all_lengths()));
    // Code that takes nothing of a tensor for granted runs with any; none of the others has as little.
    for other in others().into_iter().filter(|other| other.options.rough_tensors == 0) {
        assert!(!other.serves(&sample()) && !sample().serves(&other), "{other}");
    }
    let element = DType::F32;
    let buffer = |alignment, len_divisor| Param::Buffer { element, mutable: false, alignment, len_divisor };
    let scalar = |divisor, one| Param::Scalar { element: DType::I32, divisor, one };
    let weaker = [
        (0, buffer(4, 16), buffer(16, 16)),
        (0, buffer(16, 1), buffer(16, 8)),
        (2, scalar(8, false), scalar(16, false)),
        (2, scalar(1, false), scalar(1, true)),
        (5, tensor([false; 4]), tensor([true; 4])),
        (5, tensor([true, true, false, true]), tensor([true; 4])),
    ];
    for (at, less, more) in weaker {
        let with = |param| {
            let mut identity = sample();
            identity.params[at] = param;
            identity
        };
        assert!(with(less).serves(&with(more)) && !with(more).serves(&with(less)), "{less} {more}");
        assert!(with(less).facts() < with(more).facts(), "{less} {more}");
    }
    assert!(!scalar(1, true).serves(&scalar(16, false)), "16 is not 1");
}

#[test]
fn identities_are_shown() {
    let shown = sample().to_string();
    assert_eq!(
        shown,
        "add<f32>(1024) for sm_90a: [f32 @16 %16, mut f32 @16 %8, i32 %16, f32 =0x5, f32 none, tensor f16 x2 @16 strides \
         rows copies]"
    );
}
