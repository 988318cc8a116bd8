//! Faults planted in placed kernels: a barrier, fence, wait, arrival or commit less, another phase, slot or number of
//! groups. Each must show, as a fault or as a wrong result.

#![cfg(feature = "interp")]

#[path = "../interp_support/mod.rs"]
mod interp_support;
mod kernels;

use interp_support::{elements, placed};
use kernel_core::interp::{Fault, HostTensor, run_ordered};
use kernels::{KERNELS, NUMBERS, PARAMS, PRODUCTS, REFILLS, STORES, TURNS};

fn run(body: &str) -> (Vec<f32>, Result<(), Fault>) {
    let a: Vec<f32> = (0..32).map(|i| (i * 7 % 11) as f32).collect();
    let b: Vec<f32> = (0..16).map(|i| (i * 5 % 7) as f32 - 3.0).collect();
    let p: Vec<f32> = (0..32).map(|i| i as f32).collect();
    let mut buffers = [a.into(), b.into(), p.into(), vec![-1f32; 32].into()];
    let tall = HostTensor::contiguous(&[8, 4]);
    let tensors = [tall.clone(), HostTensor::contiguous(&[4, 4]), tall];
    let func = placed(PARAMS, &format!("{NUMBERS}{body}"));
    let result = run_ordered(&func, &mut buffers, &tensors, &[], [1, 1, 1]);
    (elements(&buffers[3]), result)
}

/// Every kernel with one mistake: what was done, and the body.
fn mutants(body: &str) -> Vec<(String, String)> {
    let lines: Vec<&str> = body.lines().collect();
    let mut out = Vec::new();
    let mut with = |index: usize, line: Option<String>| {
        let what = format!("`{}` became `{}`", lines[index].trim(), line.as_deref().unwrap_or("").trim());
        let mut text: Vec<String> = lines.iter().map(|l| (*l).to_string()).collect();
        text[index] = line.unwrap_or_default();
        out.push((what, text.join("\n")));
    };
    for (index, line) in lines.iter().enumerate() {
        let op = line.trim();
        let bare = [
            "barrier",
            "fence {kind = proxy_async}",
            "mbarrier_wait",
            "mbarrier_arrive",
            "tma_store_wait",
            "turn_begin",
            "turn_end",
        ];
        if bare.iter().any(|b| op == *b || op.starts_with(&format!("{b} "))) {
            with(index, None);
        }
        // The tokens and tiles must stay defined: a wait becomes one that waits for less.
        if op.contains("{pending = 0}") {
            with(index, Some(line.replace("{pending = 0}", "{pending = 1}")));
        }
        if op.contains("{pending = 1}") {
            with(index, Some(line.replace("{pending = 1}", "{pending = 2}")));
        }
        for (right, wrong) in [
            ("%slot, %phase", "%slot, %other"),
            ("%slot, %phase", "%zero, %phase"),
            ("%mslot, %mphase", "%mslot, %zero"),
            ("%slot, %free", "%slot, %phase"),
            ("%empty, %mslot", "%empty, %zero"),
            ("%full, %slot, %bytes", "%full, %zero, %bytes"),
            ("%full, %other, %bytes", "%full, %other, %four"),
            ("%full, %slot, %bytes", "%full, %slot"),
            ("count = 1", "count = 2"),
            ("= rem %next, %three", "= rem %next, %two"),
            ("%so: shared f32[4, 4] = shared_index %s, %other", "%so: shared f32[4, 4] = shared_index %s, %slot"),
            ("= shared_index %s, %mslot", "= shared_index %s, %zero"),
            ("%other: i32 = rem %next, %two", "%other: i32 = rem %k, %two"),
            ("in shared barrier [0..64]", "in shared [0..64]"),
            ("%turned in shared [64..128]", "%turned in shared [0..64]"),
            ("%y in shared [64..128]", "%y in shared [128..192]"),
            ("%y in shared [64..128]", "%y in shared warp [64..128]"),
        ] {
            // A wait for less may name a value that is not defined there yet.
            let defined = wrong != "%slot, %other" || body.contains("%other:");
            if op.contains(right) && defined {
                with(index, Some(line.replace(right, wrong)));
            }
        }
    }
    out
}

#[test]
fn kernels_without_mistakes_are_in_order() {
    for (name, body) in KERNELS {
        let (_, result) = run(body);
        assert_eq!(result, Ok(()), "{name}");
    }
}

#[test]
fn delays_change_no_result() {
    for (name, body) in KERNELS {
        let delayed = |line: &str| match line.trim().starts_with('}') {
            true => format!("{line}\n"),
            false => format!("delay {{seed = 1, longest = 7}}\n{line}\n"),
        };
        assert_eq!(run(&body.lines().map(delayed).collect::<String>()), run(body), "{name}");
    }
}

#[test]
fn every_planted_fault_shows() {
    let (mut planted, mut missed) = (0, Vec::new());
    for (name, body) in KERNELS {
        let (expected, _) = run(body);
        for (what, mutant) in mutants(body) {
            planted += 1;
            let (found, result) = run(&mutant);
            let same = found.iter().zip(&expected).all(|(f, e)| f.to_bits() == e.to_bits());
            if result.is_ok() && same {
                missed.push(format!("{name}: {what}"));
            }
        }
    }
    assert!(missed.is_empty(), "{} of {planted} faults do not show:\n{}", missed.len(), missed.join("\n"));
    assert!(planted >= 40, "{planted}");
}

/// Allocations of elements of other sizes share memory here: the same threads, but not the same bytes.
#[test]
fn bytes_tell_threads_apart() {
    let run = |between: &str| {
        let params = "layout #0 = register, lane [1] [2] [4] [8], warp -> dim0 16";
        let body = format!(
            "%f: f32 = const 0.0
             %wide: f32[16] #0 = splat %f
             %narrow: f16[16] #0 = cast %wide {{to = f16}}
             %s: shared f32[16] = shared_alloc in shared [0..64]
             shared_store %s, %wide
             {between}
             %t: shared f16[16] = shared_alloc in shared [0..32]
             shared_store %t, %narrow"
        );
        run_ordered(&placed(params, &body), &mut [], &[], &[], [1, 1, 1])
    };
    assert_eq!(run("barrier"), Ok(()));
    let message = run("").expect_err("another thread's bytes are overwritten").to_string();
    assert!(message.contains("without a barrier after the write"), "{message}");
}

#[test]
fn a_fence_stands_before_the_barrier() {
    let (early, late) = ("fence {kind = proxy_async}\n      barrier\n", "barrier\n      fence {kind = proxy_async}\n");
    assert!(REFILLS.contains(early) && PRODUCTS.contains(early));
    for (body, access) in [(REFILLS, "writes"), (PRODUCTS, "reads")] {
        let (_, result) = run(&body.replace(early, late));
        let message = result.expect_err("the fence tells nobody of what other threads do").to_string();
        assert!(message.contains(access) && message.contains("without a proxy fence and a barrier after"), "{message}");
    }
}

/// Of a tile that is stored, loaded, copied out and brought again, with one fence after another left out.
#[test]
fn fences_tell_of_each_access() {
    let kernel = |[stored, loaded, again]: [&str; 3]| {
        format!(
            "%s: shared f32[4, 4] = shared_alloc
             %full: barrier[1] = mbarrier_alloc {{slots = 1, count = 1}}
             fence {{kind = barrier_init}}
             %x: f32[4, 4] = desc_load %a, %zero, %zero
             shared_store %s, %x
             {stored}
             barrier
             %y: f32[4, 4] = shared_load %s
             {loaded}
             barrier
             tma_store %out, %s, %zero, %zero
             tma_store_wait {{pending = 0}}
             {again}
             barrier
             mbarrier_arrive %full, %zero, %bytes
             tma_load %a, %s, %full, %zero, %four, %zero
             mbarrier_wait %full, %zero, %zero
             %z: f32[4, 4] = shared_load %s
             desc_store %out, %z, %four, %zero"
        )
    };
    let fence = "fence {kind = proxy_async}";
    for fences in [[fence, fence, ""], ["", fence, ""], [fence, "", fence], [fence, fence, fence]] {
        assert_eq!(run(&kernel(fences)).1, Ok(()), "{fences:?}");
    }
    // A second fence takes nothing back: what came before the first is known behind the barrier between them.
    let late = kernel([fence, fence, ""]).replace("tma_store %out", "fence {kind = proxy_async}\ntma_store %out");
    assert_eq!(run(&late).1, Ok(()));
    for (fences, message) in [
        (["", "", fence], "reads shared memory without a proxy fence and a barrier after the write"),
        ([fence, "", ""], "writes shared memory without a proxy fence and a barrier after the read"),
    ] {
        let found = run(&kernel(fences)).1.expect_err("a fence lacks").to_string();
        assert!(found.contains(message), "{fences:?}: {found}");
    }
    // Nor does a load by the thread that stored tell anybody of its store.
    let own = "%s: shared f32[4, 4] = shared_alloc
        %x: f32[4, 4] = desc_load %a, %zero, %zero
        shared_store %s, %x
        barrier
        %y: f32[4, 4] = shared_load %s
        barrier
        tma_store %out, %s, %zero, %zero
        tma_store_wait {pending = 0}";
    let found = run(own).1.expect_err("nobody fences").to_string();
    assert!(found.contains("without a proxy fence and a barrier after the write"), "{found}");
}

#[test]
fn a_thread_waits_for_nobody_to_read_what_it_wrote() {
    let kernel = |second: &str| {
        format!(
            "kernel k \"\" safe placed {{
               param %a a: desc f32[4, 4]
               param %out out: desc_mut f32[4, 4]
               layout #0 = register, lane [0, 1] [0, 2] [1, 0] [2, 0] [0, 0] -> dim0 4, dim1 4
               layout #1 = register, lane [1, 0] [2, 0] [0, 1] [0, 2] [0, 0] -> dim0 4, dim1 4
               %zero: i32 = const 0
               %x: f32[4, 4] #0 = desc_load %a, %zero, %zero
               %s: shared f32[4, 4] = shared_alloc
               shared_store %s, %x
               %y: f32[4, 4] {second} = shared_load %s
               desc_store %out, %y, %zero, %zero
               return
             }}"
        )
    };
    let run = |text: &str| {
        let func = kernel_core::ir::Placed::new(kernel_core::text::parse(text).expect("tile IR")).expect("placed");
        let mut buffers = [vec![1f32; 16].into(), vec![0f32; 16].into()];
        let tensors = vec![HostTensor::contiguous(&[4, 4]); 2];
        run_ordered(&func, &mut buffers, &tensors, &[], [1, 1, 1])
    };
    assert_eq!(run(&kernel("#0")), Ok(()));
    let message = run(&kernel("#1")).expect_err("other threads wrote it").to_string();
    assert!(message.contains("is read without a barrier after the write of other threads"), "{message}");
}

/// Eight warps write a tile, and each four copy a part of it.
#[test]
fn four_warps_wait_for_nobody_to_copy_what_they_wrote() {
    let kernel = |held: &str, barrier: &str, parts: &str| {
        format!(
            "kernel k \"\" safe placed {{
               param %a a: desc f32[16, 16]
               param %out out: desc_mut f32[16, 32]
               layout #0 = register, lane [0, 1] [0, 2] [0, 4] [0, 8] [1, 0], warp [2, 0] [4, 0] [8, 0] -> dim0 16, dim1 16
               layout #1 = register, lane [0, 1] [0, 2] [0, 4] [1, 0] [2, 0], warp [4, 0] [8, 0] [0, 8] -> dim0 16, dim1 16
               %zero: i32 = const 0
               %s: shared f32[16, 16] = shared_alloc
               %x: f32[16, 16] {held} = desc_load %a, %zero, %zero
               shared_store %s, %x
               fence {{kind = proxy_async}}
               {barrier}
               tma_store %out, %s, %zero, %zero {{parts = {parts}}}
               tma_store_wait {{pending = 0}}
               {barrier}
               shared_store %s, %x
               return
             }}"
        )
    };
    let run = |text: &str| {
        let func = kernel_core::ir::Placed::new(kernel_core::text::parse(text).expect("tile IR")).expect("placed");
        let a: Vec<f32> = (0..256).map(|i| i as f32).collect();
        let mut buffers = [a.into(), vec![0f32; 512].into()];
        let tensors = [[16, 16], [16, 32]].map(|shape| HostTensor::contiguous(&shape));
        let result = run_ordered(&func, &mut buffers, &tensors, &[], [1, 1, 1]);
        let out: Vec<f32> = elements(&buffers[1]);
        let is_there = (0..512).all(|i| out[i] == if i % 32 < 16 { (i / 32 * 16 + i % 32) as f32 } else { 0.0 });
        assert!(is_there || result.is_err(), "{out:?}");
        result.map_err(|fault| fault.to_string())
    };
    assert_eq!(run(&kernel("#0", "warpgroup_barrier", "[2, 1]")), Ok(()));
    assert_eq!(run(&kernel("#1", "warpgroup_barrier", "[1, 2]")), Ok(()));
    assert_eq!(run(&kernel("#1", "barrier", "[2, 1]")), Ok(()));
    // They have met, but since the fence they have not.
    let early = kernel("#0", "warpgroup_barrier", "[2, 1]");
    let early = early.replacen(
        "fence {kind = proxy_async}\n               warpgroup_barrier",
        "warpgroup_barrier\nfence {kind = proxy_async}",
        1,
    );
    let message = run(&early).expect_err("the fence comes last");
    assert!(message.contains("without a proxy fence and a barrier after the write"), "{message}");
    for (held, barrier, parts) in [
        ("#0", "", "[2, 1]"),
        ("#0", "warpgroup_barrier", "[1, 2]"),
        ("#1", "warpgroup_barrier", "[2, 1]"),
        ("#0", "warpgroup_barrier", "[]"),
    ] {
        let message = run(&kernel(held, barrier, parts)).expect_err("others wrote it");
        assert!(message.contains("without a barrier"), "{held} {barrier} {parts}: {message}");
    }
}

/// One group writes, another fences, and a product reads. The fence covers what its own group knows of.
#[test]
fn a_fence_is_one_of_those_who_wrote() {
    let kernel = |first: &str, second: &str| {
        format!(
            "%s: shared f32[4, 4] = shared_alloc
             %sb: shared f32[4, 4] = shared_alloc
             %full: barrier[1] = mbarrier_alloc {{slots = 1, count = 1}}
             fence {{kind = barrier_init}}
             %y: f32[4, 4] = desc_load %b, %zero, %zero
             shared_store %sb, %y
             fence {{kind = proxy_async}}
             warp_groups {{warps = [4, 4], roles = [consumer, producer], registers = [40, 232]}} {{
               %x: f32[4, 4] = desc_load %a, %zero, %zero
               shared_store %s, %x
               {first}
               yield
             }} with {{
               {second}
               %d: f32[4, 4] = wgmma %s, %sb, %c
               %w: f32[4, 4] = wgmma_wait %d {{pending = 0}}
               desc_store %out, %w, %zero, %zero
               yield
             }}"
        )
    };
    let (wait, fence, arrive) =
        ("mbarrier_wait %full, %zero, %zero\n", "fence {kind = proxy_async}\n", "mbarrier_arrive %full, %zero\n");
    // What was stored before the groups began, any group may fence; beginning tells nobody.
    let earlier = |second: &str| {
        let fenced = kernel("", second).replace("wgmma %s, %sb", "wgmma %sb, %sb");
        fenced.replacen("fence {kind = proxy_async}\n             warp_groups", "warp_groups", 1)
    };
    assert_eq!(run(&earlier(&format!("{fence}barrier"))).1, Ok(()));
    let message = run(&earlier("")).1.expect_err("nobody fences").to_string();
    assert!(message.contains("without a proxy fence and a barrier after the write"), "{message}");
    assert_eq!(run(&kernel(&format!("{fence}{arrive}"), wait)).1, Ok(()), "who writes fences");
    let refused = [
        (kernel(&format!("{arrive}{fence}"), wait), "the fence comes too late"),
        (kernel(arrive, &format!("{wait}{fence}")), "who reads fences"),
        (kernel(arrive, &format!("{wait}{fence}barrier")), "who reads fences, and waits for its own threads"),
        (kernel(arrive, wait), "nobody fences"),
    ];
    for (body, what) in refused {
        let message = run(&body).1.expect_err(what).to_string();
        assert!(message.contains("without a proxy fence and a barrier after the write"), "{what}: {message}");
    }
}

#[test]
fn what_an_asynchronous_operation_reads_is_not_written() {
    let body = STORES.replace("      tma_store_wait {pending = 0}\n      barrier\n", "      barrier\n");
    assert_ne!(body, STORES);
    let message = run(&body).1.expect_err("it is overwritten").to_string();
    assert!(message.contains("is written while an asynchronous operation that reads it"), "{message}");
}

/// An arrival covers what its group did before it, and nothing behind it.
#[test]
fn an_arrival_covers_what_came_before_it() {
    let kernel = |first: &str| {
        format!(
            "%s: shared f32[4, 4] = shared_alloc
             %full: barrier[1] = mbarrier_alloc {{slots = 1, count = 1}}
             fence {{kind = barrier_init}}
             warp_groups {{warps = [4, 4], roles = [consumer, producer], registers = [40, 232]}} {{
               %x: f32[4, 4] = desc_load %a, %zero, %zero
               {first}
               yield
             }} with {{
               mbarrier_wait %full, %zero, %zero
               %y: f32[4, 4] = shared_load %s
               desc_store %out, %y, %zero, %zero
               yield
             }}"
        )
    };
    assert_eq!(run(&kernel("shared_store %s, %x\nmbarrier_arrive %full, %zero")).1, Ok(()));
    let late = run(&kernel("mbarrier_arrive %full, %zero\nshared_store %s, %x"));
    let late = late.1.expect_err("the store comes behind").to_string();
    assert!(late.contains("without a wait for the other warps"), "{late}");
}

/// An arrival for the next phase, which others have not come to, covers nothing for those who wait for this one.
#[test]
fn a_wait_sees_what_arrived_for_its_phase() {
    let kernel = "%s: shared f32[4, 4] = shared_alloc
        %full: barrier[1] = mbarrier_alloc {slots = 1, count = 2}
        %go: barrier[1] = mbarrier_alloc {slots = 1, count = 1}
        fence {kind = barrier_init}
        warp_groups {warps = [4, 4, 4], roles = [consumer, consumer, producer], registers = [40, 40, 40]} {
          mbarrier_arrive %full, %zero
          mbarrier_wait %full, %zero, %zero
          %x: f32[4, 4] = desc_load %a, %zero, %zero
          shared_store %s, %x
          mbarrier_arrive %full, %zero
          yield
        } with {
          mbarrier_arrive %full, %zero
          mbarrier_wait %go, %zero, %zero
          mbarrier_wait %full, %zero, %zero
          %y: f32[4, 4] = shared_load %s
          desc_store %out, %y, %zero, %zero
          yield
        } with {
          mbarrier_arrive %go, %zero
          yield
        }";
    let message = run(kernel).1.expect_err("the store is for the next phase").to_string();
    assert!(message.contains("without a wait for the other warps"), "{message}");
}

/// In a turn, the other half of the group releases nothing: with one slot, whoever has the turn waits for a copy that waits
/// for the other.
#[test]
fn a_turn_waits_for_no_slot_that_the_other_half_reads() {
    let one_slot = TURNS.replace("[2, 4, 4]", "[1, 4, 4]").replace("barrier[2]", "barrier[1]");
    let one_slot = one_slot.replace("slots = 2", "slots = 1").replace("%two", "%ring");
    let one_slot = format!("%ring: i32 = const 1\n{one_slot}");
    // With one slot the phase changes in each iteration.
    let one_slot =
        one_slot.replace("rem %mturn, %ring", "rem %mturn, %two").replace("rem %turn, %ring", "rem %turn, %two");
    let message = run(&one_slot).1.expect_err("the slot is not free in the turn").to_string();
    assert!(message.contains("deadlock: nothing can complete phase 1 of barrier 0"), "{message}");
    let alone: String =
        one_slot.lines().filter(|line| !line.contains("turn_")).map(|line| format!("{line}\n")).collect();
    assert_eq!(run(&alone), run(TURNS));
}

#[test]
fn turns_that_cannot_come_are_deadlocks() {
    let (begins, ends) = ("a turn begins in a turn", "a turn ends that has not begun");
    for (right, wrong, why) in [
        ("        turn_begin\n", "", ends),
        ("        turn_begin\n", "turn_begin\nturn_begin\n", begins),
        ("        turn_end\n", "", begins),
        ("        turn_end\n", "turn_end\nturn_end\n", ends),
        ("turn_end\n      desc", "barrier\n turn_end\n desc", "threads meet in a turn"),
        ("%x: f32[4, 4] = add", "turn_begin\n barrier\n %x: f32[4, 4] = add", "threads meet in a turn"),
        (
            "turn_end\n      desc_store %out, %r",
            "%moved: f32[4, 4] = convert_layout %r in shared [256..320]\n turn_end\n desc_store %out, %moved",
            "threads meet in a turn",
        ),
        ("turn_end\n      desc", "desc", "a warp group ends in a turn"),
    ] {
        let body = TURNS.replacen(right, wrong, 1);
        assert_ne!(body, TURNS);
        let message = run(&body).1.expect_err("it waits for ever").to_string();
        assert!(message.starts_with("deadlock: ") && message.contains(why), "{message}\n{body}");
    }
}
