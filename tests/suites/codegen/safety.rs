//! Safety costs nothing where a launch condition covers it: the safe kernel has the instructions of the unsafe one.

use tilewright::prelude::*;
use tilewright_tests::assembler::{assemble_as_loaded, ptx_instructions};

use super::kernels;

#[test]
fn safe_and_unsafe_kernels_have_the_same_instructions() {
    for kernels::Sample { name, safe, unchecked, .. } in kernels::all() {
        let counts = [&safe, &unchecked].map(|ptx| ptx_instructions(ptx));
        assert_eq!(counts[0], counts[1], "{name}: instructions of PTX\n{safe}\n{unchecked}");
        let (Some(safe), Some(unchecked)) =
            (assemble_as_loaded(&safe, "sm_90a"), assemble_as_loaded(&unchecked, "sm_90a"))
        else {
            continue;
        };
        assert_eq!(safe.instructions, unchecked.instructions, "{name}: instructions of the hardware");
        assert_eq!(safe.registers, unchecked.registers, "{name}: registers");
        assert_eq!((safe.spills, unchecked.spills), (0, 0), "{name}: spills\n{}", safe.log);
    }
}

/// What would be undefined if it did not hold: flags of LLVM's instructions.
#[test]
fn lowered_code_promises_nothing() {
    for kernels::Sample { name, lowered, .. } in kernels::all() {
        assert!(lowered.contains("getelementptr") && lowered.contains(" add "), "{name} is not lowered:\n{lowered}");
        for line in lowered.lines() {
            let promise = line.split([' ', ',']).find(|word| ["nsw", "nuw", "exact", "inbounds"].contains(word));
            assert_eq!(promise, None, "{name}: {line}");
        }
    }
}

#[kernel]
fn chosen_rows<const BLOCK: usize>(table: Ptr<f16>, ids: Ptr<i32>, out: PtrMut<f16>, columns: i32) {
    let column = arange(0, BLOCK);
    let mask = column < columns;
    let id = load(ids + program_id(0));
    store(out + program_id(0) * columns + column, load(table + id * columns + column, mask = mask), mask = mask);
}

/// Checks per lane leave vectors whole, where the buffer's length allows it: 3000 halves are 375 vectors of 16 bytes.
#[test]
fn rows_chosen_by_data_are_read_in_vectors() -> Result<(), Error> {
    let device = Device::cpu();
    let ids = device.zeros::<i32>(2)?;
    let loads = |elements: usize| -> Result<[usize; 2], Error> {
        let (table, mut out) = (device.zeros::<f16>(elements)?, device.zeros::<f16>(2000)?);
        let compiled = chosen_rows::<1024>(&table, &ids, &mut out, 1000).grid(2).compile(Target::sm_90a())?;
        Ok(["ld.global.nc.v4.b32", "ld.global.nc.b16"].map(|load| compiled.ptx().matches(load).count()))
    };
    assert_eq!([loads(3200)?, loads(3000)?, loads(3004)?], [[1, 0], [1, 0], [0, 8]]);
    Ok(())
}
