// One trampoline for each name in names.s: it puts its slot number into x17 and branches, through
// x16, to the address in its slot of the table. The procedure call standard leaves x16 and x17 to
// such stubs. The slot number lets one stub serve all empty slots and still name the function.

.pushsection .text.tilewright_llvm, "ax", @progbits

.macro llvm_function name
  .globl \name
  .hidden \name
  .type \name, %function
  .p2align 4
\name:
  movz w17, #tilewright_llvm_slot
  adrp x16, {table} + 8 * tilewright_llvm_slot
  ldr x16, [x16, :lo12:({table} + 8 * tilewright_llvm_slot)]
  br x16
  .size \name, . - \name
  .set tilewright_llvm_slot, tilewright_llvm_slot + 1
.endm

.globl tilewright_llvm_empty_slot
.hidden tilewright_llvm_empty_slot
.type tilewright_llvm_empty_slot, %function
.p2align 4
tilewright_llvm_empty_slot:
  mov w0, w17
  b {empty_slot}
.size tilewright_llvm_empty_slot, . - tilewright_llvm_empty_slot

.set tilewright_llvm_slot, 0
