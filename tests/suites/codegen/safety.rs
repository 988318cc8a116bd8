//! Safety costs nothing where a launch condition covers it: the safe kernel has the instructions of the unsafe one.

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
