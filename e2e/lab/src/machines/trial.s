# The boot sector of the trial machine: it goes to 64-bit mode, as every kernel does, and reports that by port 0xf4.
# Made into trial.bin by: as trial.s -o trial.o && objcopy -O binary -j .text trial.o trial.bin && truncate -s 510 trial.bin &&
#   printf '\125\252' >>trial.bin
.code16
.globl _start
_start:
  cli
  xorw %ax, %ax
  movw %ax, %ds
  movw %ax, %es
  movl $0x1000, %edi
  movl %edi, %cr3
  xorl %eax, %eax
  movl $0xc00, %ecx
  rep stosl
  movw $0x2003, 0x1000
  movw $0x3003, 0x2000
  movb $0x83, 0x3000
  movl %cr4, %eax
  orb $0x20, %al
  movl %eax, %cr4
  movl $0xc0000080, %ecx
  rdmsr
  orb $1, %ah
  wrmsr
  movl %cr0, %eax
  orl $0x80000001, %eax
  movl %eax, %cr0
  lgdtl (pointer - _start + 0x7c00)
  ljmpl $8, $(long - _start + 0x7c00)
.code64
long:
  # Kernels use this instruction to allocate memory. KVM that runs without the processor's help does not know it, and stops the machine.
  lock cmpxchg16b 0x4000
  movb $16, %al
  outb %al, $0xf4
  hlt
gdt: .quad 0, 0x00209a0000000000
pointer: .word 15
  .long gdt - _start + 0x7c00
