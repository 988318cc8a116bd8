use super::support::body;
#[test]
fn t() {
    println!(
        "{}",
        body(
            "fn add<T: Num, const BLOCK: usize>(x: Ptr<T>, y: Ptr<T>, out: PtrMut<T>, n: i32) {
    let offsets = program_id(0) * BLOCK + arange(0, BLOCK);
    let mask = offsets < n;
    let sum = load(x + offsets, mask = mask) + load(y + offsets, mask = mask);
    store(out + offsets, sum, mask = mask);
}"
        )
    );
    println!(
        "{}",
        body(
            "fn k<const BLOCK: usize>(x: Ptr<f16>, out: PtrMut<f16>, n: i32) {
    if n < 0 { return; }
    let mut acc = 0.0;
    for i in (0..n).step_by(BLOCK).rev() { acc += sum(load(x + i + arange(0, BLOCK))); }
    if n > 5 { if n > 7 { return; } acc = 1.0; }
    store(out, acc);
}"
        )
    );
}
