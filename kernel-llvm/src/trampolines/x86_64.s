// One trampoline for each name in names.s: it puts its slot number into r11, which the System V
// calling convention leaves to such stubs, and jumps to the address in its slot of the table.
// The slot number costs one instruction of one cycle; it lets one stub serve all empty slots and
// still name the function.

.pushsection .text.tilewright_llvm, "ax", @progbits

.macro llvm_function name
  .globl \name
  .hidden \name
  .type \name, @function
  .p2align 4
\name:
  movl $tilewright_llvm_slot, %r11d
  jmpq *({table} + 8 * tilewright_llvm_slot)(%rip)
  .size \name, . - \name
  .set tilewright_llvm_slot, tilewright_llvm_slot + 1
.endm

.globl tilewright_llvm_empty_slot
.hidden tilewright_llvm_empty_slot
.type tilewright_llvm_empty_slot, @function
.p2align 4
tilewright_llvm_empty_slot:
  movl %r11d, %edi
  jmp {empty_slot}
.size tilewright_llvm_empty_slot, . - tilewright_llvm_empty_slot

.set tilewright_llvm_slot, 0
