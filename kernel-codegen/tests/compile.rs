//! Every test kernel compiles and assembles for every target.

mod support;

use kernel_codegen::{Options, Target, compile};
use kernel_core::ir::{CacheModifier, EvictionPolicy};
use support::compiles_everywhere;

macro_rules! kernels {
    ($($name:ident),*) => {$(
        #[test]
        fn $name() {
            compiles_everywhere(include_str!(concat!("kernels/", stringify!($name), ".tile")));
        }
    )*};
}

kernels!(
    add, softmax, rows, transpose, argmax, gather, rowsum, scan, bias, inplace, steer, atomics, layernorm, loops,
    chunks, walk, verdict, pieces, shift, persistent
);

#[test]
fn every_cache_modifier_and_eviction_policy_assembles() {
    let add = include_str!("kernels/add.tile");
    for cache in CacheModifier::ALL {
        for eviction in EvictionPolicy::ALL {
            let attributes = format!("{{cache = {}, eviction = {}}}", cache.name(), eviction.name());
            let text = add
                .replace("load %xp, %mask", &format!("load %xp, %mask {attributes}"))
                .replace("store %op, %sum, %mask", &format!("store %op, %sum, %mask {attributes}"));
            // Once through constant memory, once through memory that the kernel may write.
            for text in [text.replace("x: ptr f32", "x: ptr_mut f32"), text] {
                for target in [Target::sm_80(), Target::sm_90a()] {
                    let compiled = compile(&support::kernel(&text), &target, &Options::default());
                    support::assemble(&compiled.unwrap_or_else(|error| panic!("{error}")));
                }
            }
        }
    }
}

/// Registers are set before masked loads only where somebody may see the lanes that the mask leaves out.
#[test]
fn masked_loads_set_registers_first_only_where_that_shows() {
    let add = include_str!("kernels/add.tile");
    let set = |text: &str| {
        let compiled = support::compile_for_hopper(&support::kernel(text));
        support::assemble(&compiled);
        compiled.ptx.lines().filter(|line| line.trim().starts_with("mov.b32") && line.ends_with(", 0;")).count()
    };
    assert_eq!(set(add), 0);
    // Without a mask, the store shows what each of the registers holds.
    let all = add.replace("store %op, %sum, %mask", "store %op, %sum");
    assert_ne!(all, add);
    assert!(set(&all) >= 16, "{}", set(&all));
}
