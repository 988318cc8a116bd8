//! stub
use tilewright_fuzz::{generate::generate, oracle::{Agreement, Ways, check, quiet_panics}};
fn main() {
    quiet_panics();
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("pool");
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let start = std::time::Instant::now();
    let mut refused = std::collections::BTreeMap::new();
    let mut bad = 0;
    let mut counts = vec![0; 64];
    for seed in args[0]..args[1] {
        let (case, features) = generate(seed);
        for i in 0..64 { counts[i] += features.bits() >> i & 1; }
        match check(&case, Ways { emulate: args[2] > 0 && seed % args[2] == 0 }) {
            Ok(Agreement::Full) => {}
            Ok(Agreement::Refused(why)) => *refused.entry(why).or_insert(0) += 1,
            Err(d) => { bad += 1; println!("{seed}: {} {} [{} w{}]", d.stage, &d.what[..d.what.len().min(250)], case.target.name(), case.options.num_warps); if args.len() > 3 { println!("{}", case.text()); } }
        }
    }
    println!("{refused:?}");
    for (f, name) in tilewright_fuzz::generate::features::Feature::ALL { println!("{name:40} {}", counts[*f as usize]); }
    println!("{bad} bad, {:?}", start.elapsed() / (args[1] - args[0]) as u32);
}
