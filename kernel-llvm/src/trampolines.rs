//! Every function of the LLVM C API, defined here and pointed at a loaded library later.
//!
//! `inkwell` and `llvm-sys` call LLVM through ordinary undefined symbols, which a linker wants
//! defined when a program is built. This module defines each of them as a *trampoline*, a jump
//! through one slot of a table:
//!
//! ```text
//! LLVMContextCreate:                       TABLE[i]  before load: the empty-slot stub
//!     movl $i, %r11d                                 after load:  LLVMContextCreate in libLLVM
//!     jmpq *TABLE+8*i(%rip)
//! ```
//!
//! so a program links without LLVM, starts without LLVM, and pays one predicted jump per call. The
//! symbols are hidden: they never stand in for another LLVM that some library of the same process
//! brings along.
//!
//! A slot is never null. Until it is filled it holds a stub that names the function, says what to
//! do, and aborts; a slot stays that way for the few functions that the loaded LLVM does not export
//! (rustup's LLVM 22.1 lacks 28 of the 1,291: four retired ones, the Lanai and XCore targets, and
//! the `LLVM_Initialize*` helpers that exist only in C headers).

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The names, one assembler line `llvm_function NAME` each; the n-th is the n-th slot.
const NAMES: &str = include_str!("trampolines/names.s");
/// What comes before a name on its line.
const LINE_START: &[u8] = b"llvm_function ";
/// The number of functions, and of slots.
const COUNT: usize = count_names(NAMES.as_bytes());

/// Counts the lines that begin with [`LINE_START`].
const fn count_names(text: &[u8]) -> usize {
    let (mut at, mut matched, mut count) = (0, 0, 0);
    while at < text.len() {
        if text[at] == b'\n' {
            matched = 0;
        } else if matched < LINE_START.len() {
            // A line that departs from the start is left by a count that no match can reach again.
            matched = if text[at] == LINE_START[matched] { matched + 1 } else { usize::MAX };
            if matched == LINE_START.len() {
                count += 1;
            }
        }
        at += 1;
    }
    count
}

unsafe extern "C" {
    /// The stub in every slot that nothing has filled. Naming it from [`TABLE`] is also what makes
    /// a linker take the object with the trampolines out of this crate's archive.
    fn tilewright_llvm_empty_slot();
}

/// Where each trampoline jumps to.
static TABLE: [AtomicPtr<()>; COUNT] = [const { AtomicPtr::new(tilewright_llvm_empty_slot as *mut ()) }; COUNT];

/// Whether [`fill`] has run, which decides what the message about an empty slot advises.
static FILLED: AtomicBool = AtomicBool::new(false);

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    include_str!("trampolines/x86_64.s"),
    include_str!("trampolines/names.s"),
    include_str!("trampolines/end.s"),
    table = sym TABLE,
    empty_slot = sym empty_slot,
    options(att_syntax),
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    include_str!("trampolines/aarch64.s"),
    include_str!("trampolines/names.s"),
    include_str!("trampolines/end.s"),
    table = sym TABLE,
    empty_slot = sym empty_slot,
);

/// The names in slot order.
fn names() -> impl Iterator<Item = &'static str> {
    NAMES.lines().filter_map(|line| line.strip_prefix("llvm_function "))
}

/// Says which function was called too early, or is missing, and aborts: the caller expects a result
/// that nobody can give.
extern "C" fn empty_slot(slot: u32) -> ! {
    let name = names().nth(slot as usize).unwrap_or("an unknown LLVM function");
    if FILLED.load(Ordering::Acquire) {
        eprintln!(
            "Tilewright: {name} was called, but the loaded LLVM does not export it. \
             Name another LLVM 22 or 23 with TILEWRIGHT_LLVM."
        );
    } else {
        eprintln!(
            "Tilewright: {name} was called before LLVM was loaded. \
             Call kernel_llvm::load() first and go on only if it returns Ok."
        );
    }
    std::process::abort()
}

/// Points every slot whose function `address_of` knows at that function, and returns the names of
/// the functions that it does not know; their slots keep the stub that names them.
///
/// # Safety
///
/// Each address must be that of the C function of that name in an LLVM whose C API is the one that
/// `llvm-sys` declares, and must stay valid until the process ends.
pub(crate) unsafe fn fill(mut address_of: impl FnMut(&CString) -> Option<*mut ()>) -> Vec<&'static str> {
    let mut missing = Vec::new();
    for (slot, name) in TABLE.iter().zip(names()) {
        let address = CString::new(name).ok().and_then(|symbol| address_of(&symbol));
        match address {
            // Readers are ordered after this by the `OnceLock` behind `load`.
            Some(address) => slot.store(address, Ordering::Relaxed),
            None => missing.push(name),
        }
    }
    FILLED.store(true, Ordering::Release);
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_unique_and_as_many_as_slots() {
        let all: Vec<_> = names().collect();
        assert_eq!(all.len(), COUNT);
        assert!(all.is_sorted_by(|a, b| a < b));
        assert!(all.contains(&"LLVMBuildAdd"));
    }

    /// Assembles the trampolines of another processor with the loaded LLVM.
    fn assemble_for_aarch64(assembly: &str) -> Vec<u8> {
        use inkwell::OptimizationLevel;
        use inkwell::targets::{CodeModel, FileType, RelocMode, Target, TargetTriple};
        use llvm_sys::target::{
            LLVMInitializeAArch64AsmParser, LLVMInitializeAArch64AsmPrinter, LLVMInitializeAArch64Target,
            LLVMInitializeAArch64TargetInfo, LLVMInitializeAArch64TargetMC,
        };
        let llvm = crate::load().expect("the toolchain has an LLVM");
        // SAFETY: LLVM is loaded, and the toolchain's has this target; each call only registers.
        unsafe {
            LLVMInitializeAArch64TargetInfo();
            LLVMInitializeAArch64Target();
            LLVMInitializeAArch64TargetMC();
            LLVMInitializeAArch64AsmParser();
            LLVMInitializeAArch64AsmPrinter();
        }
        let triple = TargetTriple::create("aarch64-unknown-linux-gnu");
        let target = Target::from_triple(&triple).expect("registered above");
        let (level, model) = (OptimizationLevel::None, CodeModel::Default);
        let machine = target.create_target_machine(&triple, "generic", "", level, RelocMode::PIC, model);
        let machine = machine.expect("a machine of a registered target");
        let context = crate::new_context(llvm);
        let module = crate::new_module(&context, "trampolines", &machine);
        module.set_inline_assembly(assembly);
        let object = machine.write_to_memory_buffer(&module, FileType::Object);
        object.expect("the assembly is right").as_slice().to_vec()
    }

    #[test]
    fn the_aarch64_trampolines_assemble_to_four_instructions_each() {
        let assembly = [include_str!("trampolines/aarch64.s"), NAMES, include_str!("trampolines/end.s")]
            .concat()
            .replace("{table}", "the_table")
            .replace("{empty_slot}", "the_empty_slot");
        let object = assemble_for_aarch64(&assembly);
        for slot in [0, 1, COUNT as u32 - 1] {
            // movz w17, #slot; adrp x16, page; ldr x16, [x16, low bits]; br x16. The linker fills in
            // the address, so its bits are zero in the object.
            let movz = 0x5280_0011_u32 | slot << 5;
            let code: Vec<u8> =
                [movz, 0x9000_0010, 0xf940_0210, 0xd61f_0200].iter().flat_map(|word| word.to_le_bytes()).collect();
            let found = object.windows(code.len()).filter(|bytes| *bytes == code).count();
            assert_eq!(found, 1, "slot {slot}");
        }
    }

    #[test]
    fn counting_skips_comments_and_look_alikes() {
        let text = b"// llvm_function A\nllvm_function B\nllvm_functions C\n\nllvm_function D";
        assert_eq!(count_names(text), 2);
    }
}
